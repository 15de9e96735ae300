//! Restores a disk from a backup chain: a full backup and the incremental backups after it.
//!
//! All maps are read first. Each byte of the disk then comes from the newest file that defines it,
//! so it is read and written once, however long the chain is. A file does not prove which file it
//! follows, unless it names its backing file. The module `order` detects contradictions between
//! the files.

mod order;
mod source;

use codec::decode;
use codec::input::TransferInput;
use diskimage::{ChainMap, DETECT_BYTES, Error as ImageError, Format, Host, Image, MapBuilder};
use inspect::detect_format;
use inspect::{MetadataReader, ranged_length};
use stream::error::{Error, SourceError, SourceErrorKind};
use stream::meter::Meter;
use stream::observe::TransferPhase;
use stream::options::ReadOptions;

use self::order::{OpenedBackup, chain_error, check_distinct, check_order};
pub use self::source::{ChainFile, ChainSource, DatedFolder};
use crate::disk;
use crate::format::{ChainedFile, ImageChain, MappedImage, PreparedImage};
use crate::options::WriteOptions;
use crate::transfer::{self, TransferReport};

/// The error of a restore, with the name of the file that caused it, if a single file did.
#[derive(Debug)]
pub struct RestoreError {
    /// The failure.
    pub error: Error,
    /// The name of the file's source.
    pub file: Option<String>,
}

impl From<Error> for RestoreError {
    fn from(error: Error) -> Self {
        Self { error, file: None }
    }
}

/// Writes the disk that `chain` holds to the target. The first file is a qcow2 image without a
/// backing file or a raw disk, the others are qcow2 deltas. The target becomes complete
/// under the same conditions as in [`transfer_image`](crate::transfer_image).
pub fn restore_chain(
    chain: &ChainSource,
    target: &disk::DiskOptions,
    reading: &ReadOptions,
    writing: &WriteOptions,
) -> Result<TransferReport, RestoreError> {
    reading.observer.begin_phase(TransferPhase::Info);
    for (file, _) in chain.placed_files() {
        disk::refuse_source(&target.path, &*file.source).map_err(|error| of_file(file, error))?;
    }
    check_distinct(chain)?;
    let meter = Meter::new(chain, reading)?;
    let mut input = decode::decode_input(meter, reading, &writing.decode_limits(&reading.limits))?;
    let image = read_maps(chain, &mut input, reading)?;
    Ok(transfer::write_disk(PreparedImage::Mapped(image), input, target, reading, writing)?)
}

/// Reads the maps of all files and merges them.
fn read_maps(
    chain: &ChainSource,
    input: &mut TransferInput,
    reading: &ReadOptions,
) -> Result<MappedImage, RestoreError> {
    if ranged_length(chain, input).is_none() {
        let message = "the full backup is compressed as a whole: decompress it first";
        return Err(Error::from(SourceError::new(SourceErrorKind::Invalid, message)).into());
    }
    let memory = &reading.limits.memory;
    // The backing format in the second file decides how the first file is read.
    let mut stated = None;
    if let Some((file, part)) = chain.placed_files().nth(1) {
        let reader = MetadataReader::of_part(chain, part, input, memory);
        // Errors of this file are reported in the order of the files.
        let second = reader.map_err(|error| of_file(file, error))?.head().clone();
        stated = Image::open_delta(&second).ok().and_then(|(_, base)| base?.format);
    }
    let mut backups = Vec::with_capacity(chain.file_count());
    for (file, part) in chain.placed_files() {
        let mut open = || {
            let head = MetadataReader::of_part(chain, part.clone(), input, memory)?.head().clone();
            let opened = if backups.is_empty() {
                // The length is passed, because the input continues with the next file, even within
                // the first bytes if this file is short.
                open_full(&head, part.end - part.start, stated.as_deref())?
            } else {
                open_increment(&head)?
            };
            check_order(&backups, file, &opened)?;
            Ok(opened)
        };
        let opened = open().map_err(|error: Error| of_file(file, error))?;
        backups.push((file, part, opened));
    }

    let mut map = ChainMap::new(memory.empty_grant(), memory.empty_grant());
    let mut files = Vec::with_capacity(backups.len());
    for (file, part, backup) in backups.into_iter().rev() {
        let (start, length) = (Host(part.start), part.end - part.start);
        let merge = || {
            let Some(image) = backup.image else {
                map.add_raw(length, start)?;
                return Ok(None);
            };
            let clusters = image.head_facts().clusters;
            let mut tables = MapBuilder::new(image, length, memory.empty_grant())?;
            // The head is read again: kept heads of a hundred files would take 100 MiB.
            MetadataReader::of_part(chain, part, input, memory)?.fetch_tables(&mut tables)?;
            map.add_older(tables, start)?;
            Ok(clusters)
        };
        let clusters = merge().map_err(|error: Error| of_file(file, error))?;
        files.push(ChainedFile { start, clusters });
    }
    files.reverse();
    let (stream, clipped) = map.into_stream().ok_or_else(|| {
        chain_error(
            "the chain has no incremental backup; use `cdi-importer convert` for a single image",
        )
    })?;
    Ok(MappedImage::of_chain(stream, ImageChain { clipped, files }))
}

fn of_file(file: &ChainFile, error: impl Into<Error>) -> RestoreError {
    RestoreError { error: error.into(), file: Some(file.source.name()) }
}

/// Opens the full backup: `length` bytes that begin with `head`. If the next file states a format,
/// nothing is detected: the disk of a guest may begin like any image.
fn open_full(head: &[u8], length: u64, stated: Option<&str>) -> Result<OpenedBackup, Error> {
    let format = match stated {
        Some("raw") => Format::Raw,
        Some("qcow2") => {
            let head = head.get(..DETECT_BYTES).unwrap_or(head);
            Format::resolve_wanted(head, Some(Format::Qcow2))?
        }
        _ => detect_format(head, length)?,
    };
    match format {
        Format::Raw => Ok(OpenedBackup::from_raw(length)),
        Format::Qcow2 => match Image::open(Format::Qcow2, head) {
            Ok(image) => Ok(OpenedBackup::from_image(image, None)),
            Err(ImageError::BackingFile(found)) => Err(chain_error(format!(
                "not a full backup: it has the backing file \"{found}\"; pass the full backup first"
            ))),
            Err(error) => Err(error.into()),
        },
        found => Err(format_error(found)),
    }
}

/// The error for a file in another format than backups have.
fn format_error(found: Format) -> Error {
    chain_error(format!(
        "the format is {found}, expected qcow2 (a full backup may also be raw); pass the full backup first, then the incremental ones"
    ))
}

/// Opens an incremental backup, which begins with `head`.
fn open_increment(head: &[u8]) -> Result<OpenedBackup, Error> {
    let found = Format::resolve_wanted(head.get(..DETECT_BYTES).unwrap_or(head), None)?;
    if found != Format::Qcow2 {
        return Err(format_error(found));
    }
    let (image, backing_file) = Image::open_delta(head)?;
    Ok(OpenedBackup::from_image(image, backing_file))
}
