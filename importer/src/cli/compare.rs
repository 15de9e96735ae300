//! Runs `cdi-importer compare`, which compares the bytes of two disks.

use bytes::{Buf, Bytes};
use fetch::file::FileSource;
use program::command_line::CommandError;
use program::exit::ExitReason;
use stream::error::Error;
use stream::observe::NoObserver;
use stream::source::Source;
use stream::zeros::{ZEROS, is_known_zero};
use tokio_util::sync::CancellationToken;

use super::args::CompareArgs;
use super::failure::ImporterCommandError;

pub(super) fn run(arguments: CompareArgs) -> Result<(), ImporterCommandError> {
    let CompareArgs { first, second, log } = arguments;
    log.begin_logging(super::PROGRAM);
    let sentence = super::on_runtime(NoObserver::new_shared(), move |context| {
        let open = |path| FileSource::open_seekable(path, context.stop.clone());
        let disks = [open(&first)?, open(&second)?];
        let [first, second] = disks.each_ref().map(Source::name);
        match find_difference(&disks, &context.stop)? {
            Some(offset) => {
                let sentence = format_args!("{first} and {second} differ at byte {offset}");
                Err(CommandError::new(ExitReason::Image, sentence).into())
            }
            None => Ok(format!("{first} and {second} are equal\n")),
        }
    })?;
    super::print_bytes(printable::escape_text(&sentence).as_bytes())
}

/// Returns the offset of the first byte in which the disks differ. Bytes after the end of one disk
/// count as zeros. Holes are not read.
fn find_difference(
    disks: &[FileSource; 2],
    stop: &CancellationToken,
) -> Result<Option<u64>, ImporterCommandError> {
    let mut bodies = [disks[0].open_body()?, disks[1].open_body()?];
    let mut parts = [Bytes::new(), Bytes::new()];
    let mut offset = 0;
    while !stop.is_cancelled() {
        for (body, part) in bodies.iter_mut().zip(&mut parts).filter(|(_, part)| part.is_empty()) {
            *part = body.next_chunk().map(Option::unwrap_or_default)?;
        }
        let longest = parts[0].len().max(parts[1].len()).min(ZEROS.len());
        if longest == 0 {
            return Ok(None);
        }
        for part in parts.iter_mut().filter(|part| part.is_empty()) {
            *part = Bytes::from_static(&ZEROS[..longest]);
        }
        let length = parts[0].len().min(parts[1].len());
        let [first, second] = parts.each_ref().map(|part| &part[..length]);
        if !(is_known_zero(first) && is_known_zero(second)) && first != second {
            let equal = first.iter().zip(second).take_while(|(first, second)| first == second);
            return Ok(Some(offset + equal.count() as u64));
        }
        parts.iter_mut().for_each(|part| part.advance(length));
        offset += length as u64;
    }
    Err(Error::Stopped.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn disks_differ_in_their_bytes_but_not_in_zeros_at_their_ends() {
        let disk = |bytes: &[u8], size: u64| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(bytes).unwrap();
            file.as_file().set_len(size).unwrap();
            FileSource::open_seekable(file.path(), CancellationToken::new()).unwrap()
        };
        let data = vec![7; 300 << 10];
        let mut other = data.clone();
        other[299 << 10] = 8;
        let stop = CancellationToken::new();
        for (first, second, expected) in [
            (disk(&data, 4 << 20), disk(&data, 9 << 20), None),
            (disk(&data, 4 << 20), disk(&other, 4 << 20), Some(299 << 10)),
            (disk(&data, 300 << 10), disk(&data[..5000], 300 << 10), Some(5000)),
            (disk(&[], 0), disk(&[0; 9], 9), None),
            (disk(&[], 0), disk(&[0, 1], 2), Some(1)),
        ] {
            let disks = [first, second];
            assert_eq!(find_difference(&disks, &stop).unwrap(), expected);
        }
        stop.cancel();
        assert!(find_difference(&[disk(&data, 1), disk(&data, 1)], &stop).is_err());
    }
}
