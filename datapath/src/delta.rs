//! Deltas: a qcow2 image that is the difference to a disk which is there already.
//!
//! The disk is changed in place. That is not atomic, yet it can be repeated: a delta says what the clusters that it
//! has are to be, so applying it again after an interruption leads to the same disk. Nothing is hidden or removed when
//! it fails, for the disk below may be all that there is of the earlier stages.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use diskimage::{Clusters, Error as ImageError, Format, HEAD_BYTES, Image, Stream};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, FormatError};
use crate::format::park::Park;
use crate::format::{Input, mapped};
use crate::meter::Readings;
use crate::observe::Phase;
use crate::recognize::{Opened, open, start};
use crate::source::Source;
use crate::target::{self, Cache, Disk, Writer, with_writer};
use crate::transfer::{ImageFacts, Options, RouteTaken, drain, verify_checksum};

/// Zeroed at once; bounds how long a request to stop waits.
const ZERO_STEP_BYTES: u64 = 256 << 20;

/// What a delta is applied to.
#[derive(Debug, Clone)]
pub struct Base {
    /// A regular file or block device that holds the base.
    pub path: PathBuf,
    /// Bytes that the disk may have at most; a device's size limits it too.
    pub available: u64,
    /// What the delta must call its backing file, folders aside.
    pub name: String,
    /// What goes through the page cache.
    pub cache: Cache,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What the delta was.
    pub facts: ImageFacts,
    /// Bytes of the virtual disk.
    pub virtual_size: u64,
    /// Source bytes that were consumed (or skipped).
    pub source_bytes: u64,
    /// Bytes that were written to the disk, zeros included.
    pub written_bytes: u64,
    /// The digest of the whole object, if one was asked for.
    pub checksum: Option<String>,
}

/// A delta whose head is known, and its base too.
struct Delta {
    facts: ImageFacts,
    virtual_size: u64,
    clusters: Option<Clusters>,
    stream: Stream,
    input: Input,
    readings: Arc<Readings>,
}

/// Applies the delta in `source` to the disk of `base`. Returns when it is on the disk. Whatever is wrong with the
/// delta's head, its base above all, is found before the disk is touched.
pub fn apply(source: &dyn Source, base: &Base, options: &Options) -> Result<Report, Error> {
    options.observer.phase(Phase::Info);
    target::refuse_source(&base.path, source)?;
    let mut delta = recognize(source, base, options)?;
    options.observer.image(&delta.facts);

    options.observer.phase(Phase::Transfer);
    let disk = Disk::open_in_place(&target_options(base), delta.virtual_size)?;
    write(&mut delta, &disk, options)?;
    if options.checksum.is_some() || options.read_all || source.verifies() {
        drain(&mut delta.input)?;
    }
    let checksum = verify_checksum(options, &delta.readings)?;
    if options.stop.is_cancelled() {
        return Err(Error::Stopped);
    }
    let written_bytes = disk.commit_in_place()?;
    options.observer.target_written(written_bytes);
    options.observer.phase(Phase::Complete);
    Ok(Report {
        facts: delta.facts,
        virtual_size: delta.virtual_size,
        source_bytes: delta.readings.position(),
        written_bytes,
        checksum,
    })
}

/// Everything before the disk is opened.
fn recognize(source: &dyn Source, base: &Base, options: &Options) -> Result<Delta, Error> {
    let Opened {
        layers,
        mut input,
        readings,
        format,
        ..
    } = open(source, options, &options.decode_limits())?;
    if format != Format::Qcow2 {
        let error = ImageError::NotThatFormat {
            wanted: Format::Qcow2,
            found: format,
        };
        return Err(FormatError::from(error).into());
    }
    let (image, backing_file) = Image::open_delta(&input.peek(HEAD_BYTES)?).map_err(FormatError::from)?;
    check_base(&backing_file, &base.name)?;
    let found = image.facts();
    let (stream, route) = start(image, source, &mut input, options)?;
    Ok(Delta {
        facts: ImageFacts {
            layers,
            format,
            virtual_size: Some(found.virtual_size),
            route,
        },
        virtual_size: found.virtual_size,
        clusters: found.clusters,
        stream,
        input,
        readings,
    })
}

/// Data first, then zeros: each guest byte is said to be one or the other, or nothing is said about it.
fn write(delta: &mut Delta, disk: &Disk, options: &Options) -> Result<(), Error> {
    let tick = |writer: &Writer<'_>| options.observer.target_written(writer.disk().written_bytes());
    let (stream, input) = (&mut delta.stream, &mut delta.input);
    let feed = |writer: &mut Writer<'_>| match delta.facts.route {
        RouteTaken::OnePass => mapped::copy_one_pass(
            stream,
            input,
            writer,
            Park::new(&stream.facts(), writer, options),
            tick,
        ),
        RouteTaken::Ranged | RouteTaken::Raw => mapped::copy_mapped(stream, input, writer, tick),
    };
    with_writer(
        disk,
        delta.clusters,
        Some(delta.virtual_size),
        options.workers,
        &options.stop,
        feed,
    )?;
    for range in delta.stream.zeros() {
        zero(disk, range.start.0..range.end.0, &options.stop)?;
    }
    Ok(())
}

/// A delta to something else would destroy the disk.
fn check_base(backing_file: &str, expected: &str) -> Result<(), Error> {
    let found = backing_file.rsplit('/').next().unwrap_or_default();
    if found == expected {
        return Ok(());
    }
    let error = FormatError::Base {
        found: found.to_owned(),
        expected: expected.to_owned(),
    };
    Err(error.into())
}

fn target_options(base: &Base) -> target::Options {
    target::Options {
        path: base.path.clone(),
        available: base.available,
        size: None,
        preallocate: false,
        cache: base.cache,
        overwrite: false,
        mode: None,
    }
}

fn zero(disk: &Disk, range: Range<u64>, stop: &CancellationToken) -> Result<(), Error> {
    let mut start = range.start;
    while start < range.end {
        if stop.is_cancelled() {
            return Err(Error::Stopped);
        }
        let end = range.end.min(start.saturating_add(ZERO_STEP_BYTES));
        disk.zero_range(start..end)?;
        start = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_is_known_by_the_last_part_of_its_name() {
        for name in ["snap", "/images/disk/snap", "../snap"] {
            assert!(check_base(name, "snap").is_ok(), "{name}");
        }
        let error = check_base("/images/other", "snap").unwrap_err().to_string();
        assert_eq!(
            error,
            "snapshot backing file 'other' does not match expected checkpoint 'snap', unable to safely rebase snapshot"
        );
    }
}
