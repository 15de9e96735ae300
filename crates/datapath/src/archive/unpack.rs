//! Unpacking: all of an archive becomes files of a directory, or none of it.

use std::path::PathBuf;

use super::commit::Commit;
use super::directory::Directory;
use super::entries::Entries;
use super::extract::Extraction;
use super::staging::Staging;
use super::tree::Tree;
use crate::decode;
use crate::error::{Error, TargetError};
use crate::meter::Meter;
use crate::observe::{Phase, Stage};
use crate::options::Reading;
use crate::source::Source;
use crate::storage::Storage;

/// The directory that is filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// An existing directory. What is in it stays, but for files that the archive has as well.
    pub dir: PathBuf,
    /// Replace such files, as the retry of a killed attempt has to; else an archive that has any of them is refused.
    pub overwrite: bool,
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

/// Unpacks the tar from `source` into a directory. Returns when all of it is verified and on the disk. After a failure the
/// directory is as it was, unless the error says that a part of the archive is in it. The source is always read to its end, since only there is all of it verified.
pub fn unpack(source: &dyn Source, target: &Options, reading: &Reading) -> Result<Report, Error> {
    reading.observer.phase(Phase::Info);
    let input = decode::undo(Meter::new(source, reading)?, reading, &reading.limits)?;
    let (mut layers, readings) = (input.layers(), input.readings());
    layers.push("tar");
    let mut archive = Entries::new(Box::new(input));
    // What is no archive is refused before the target is touched.
    let mut next = archive.next_entry()?;

    reading.observer.phase(Phase::Transfer);
    let directory = Directory::open(&target.dir)?;
    let staging = Staging::create(&directory)?;
    let tree = Tree::new(&staging.tree, &directory);
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
    readings.time(Stage::Target, || -> Result<(), TargetError> {
        let commit = Commit {
            tree: &staging.tree,
            target: &directory,
            overwrite: target.overwrite,
            archive: source.storage().and_then(Storage::inode),
        };
        commit.run(extracted.names)?;
        // Its removal changes the time of the directory, and needs one that can be written.
        drop(staging);
        let Some(root) = extracted.root else { return Ok(()) };
        let adopted = directory.adopt(root);
        adopted
            .and_then(|()| directory.sync_filesystem())
            .map_err(TargetError::partly_unpacked)
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
