//! Unpacking: all of an archive becomes files of a directory, or none of it.

use std::path::PathBuf;

use super::commit;
use super::entries::Entries;
use super::extract::Extraction;
use super::staging::Staging;
use super::tree::Tree;
use crate::decode;
use crate::error::Error;
use crate::meter::Meter;
use crate::observe::{Phase, Stage};
use crate::options::Reading;
use crate::source::Source;

/// The directory that is filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// An existing directory. What is in it stays, but for files that the archive has as well.
    pub dir: PathBuf,
    /// Bytes of file data that may be written.
    pub available: u64,
}

/// Figures of an archive that was unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Files, directories and links of the archive.
    pub entries: u64,
    /// Bytes of the files, holes included.
    pub data_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Source bytes that were consumed.
    pub source_bytes: u64,
    /// The digest of the whole object, if one was asked for.
    pub checksum: Option<String>,
    /// Names of the layers around the files, outermost first; the last one is `tar`.
    pub layers: Vec<&'static str>,
}

/// Unpacks the tar from `source` into a directory. Returns when all of it is verified and on the disk; after a failure
/// the directory is as it was. The source is always read to its end, since only there is all of it verified.
pub fn unpack(source: &dyn Source, target: &Options, reading: &Reading) -> Result<Report, Error> {
    reading.observer.phase(Phase::Info);
    let input = decode::undo(Meter::new(source, reading)?, reading, &reading.limits)?;
    let (mut layers, readings) = (input.layers(), input.readings());
    layers.push("tar");
    let mut archive = Entries::new(Box::new(input));
    // What is no archive is refused before the target is touched.
    let mut next = archive.next_entry()?;

    reading.observer.phase(Phase::Transfer);
    let staging = Staging::create(&target.dir)?;
    let tree = Tree::new(&staging.tree, &staging.target);
    let mut extraction = Extraction::new(tree, target.available, &*reading.observer);
    while let Some(entry) = next {
        readings.time(Stage::Target, || extraction.place(&entry, &mut archive))?;
        next = archive.next_entry()?;
    }
    // To the end of the stream, where decoders verify what they have read; the checksum is of all of it.
    archive.drain()?;
    let extracted = extraction.finish().map_err(|error| error.blame(&archive))?;
    let checksum = readings.verify()?;

    reading.observer.phase(Phase::Resize);
    // What follows makes the files visible.
    reading.check_stop()?;
    readings.time(Stage::Target, || -> Result<(), Error> {
        let root = commit::commit(&staging, extracted.names, extracted.root, source.storage())
            .map_err(|error| error.blame(&archive))?;
        staging.close(root);
        Ok(())
    })?;
    reading.observer.phase(Phase::Complete);
    Ok(Report {
        entries: extracted.entries,
        data_bytes: extracted.data_bytes,
        written_bytes: extracted.written_bytes,
        source_bytes: readings.position(),
        checksum,
        layers,
    })
}
