//! Unpacks an archive into a directory: all of it, or nothing.
//!
//! ```text
//!  source ──► meter ─► decode ─► entries ──► extraction ──► staging folder ──► commit
//!                                headers,    files, links,   inside the         renames that
//!                                pax, maps   directories     target             replace
//! ```
//!
//! The result is the same as with GNU `tar --preserve-permissions --no-same-owner -x`. Entries
//! that could reach outside the target are errors: absolute names, `..`, entries below symbolic
//! links, devices. GNU tar strips or skips some of these and continues, but then the user gets
//! something other than what was sent. Symbolic links may lead anywhere, because they are never
//! followed.
//!
//! Nothing is visible in the target before the whole archive was read and verified. Only the
//! renames at the end can leave a part of the archive in the target, if one of them fails or the
//! process is killed. If a rename fails, the error reports that.

mod commit;
mod directory;
mod extract;
mod staging;
mod tree;

use std::path::PathBuf;

use codec::decode;
use stream::error::{Error, TargetError};
use stream::meter::Meter;
use stream::observe::{Stage, TransferPhase};
use stream::options::ReadOptions;
use stream::source::Source;
use stream::storage::StorageLocation;
use tar::TarReader;

use super::unpack::commit::Commit;
use super::unpack::directory::Directory;
use super::unpack::extract::ArchiveExtraction;
use super::unpack::staging::Staging;
use super::unpack::tree::Tree;

/// Where and how an archive is unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpackOptions {
    /// An existing directory. Its content stays, except for files that are in the archive too.
    pub dir: PathBuf,
    /// If true, such files are replaced, as required when a killed attempt is retried. If false,
    /// an archive that contains any of them is refused.
    pub overwrite: bool,
    /// Limit on the bytes of file data that may be written.
    pub available: u64,
}

/// Statistics of an unpacked archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpackReport {
    /// Number of files, directories and links in the archive.
    pub entries: u64,
    /// Size of all files in bytes, holes included.
    pub data_bytes: u64,
    /// Bytes of file data that were written.
    pub written_bytes: u64,
    /// Bytes that were read from the source.
    pub source_bytes: u64,
    /// The digest of the whole source object, if one was requested.
    pub checksum: Option<String>,
    /// Names of the layers around the files, outermost first; the last one is `tar`.
    pub layers: Vec<&'static str>,
}

/// Unpacks the tar from `source` into a directory. Returns when the whole archive is verified and
/// on the disk.
///
/// After a failure the directory is unchanged, unless the error reports that a part of the archive
/// is in it. The source is always read to its end, because only there can all of it be verified.
pub fn unpack_archive(
    source: &dyn Source,
    target: &UnpackOptions,
    reading: &ReadOptions,
) -> Result<UnpackReport, Error> {
    reading.observer.begin_phase(TransferPhase::Info);
    let input = decode::decode_input(Meter::new(source, reading)?, reading, &reading.limits)?;
    let (mut layers, readings) = (input.layer_names(), input.readings());
    layers.push("tar");
    let mut archive = TarReader::new(Box::new(input));
    // The first header is read here, so data that is not an archive is refused before the target
    // is touched.
    let mut next = archive.next_entry()?;

    reading.observer.begin_phase(TransferPhase::Transfer);
    let directory = Directory::open(&target.dir)?;
    let staging = Staging::create(&directory)?;
    let tree = Tree::new(&staging.tree, &directory);
    let mut extraction = ArchiveExtraction::new(tree, target.available, &*reading.observer);
    while let Some(entry) = next {
        readings.time_stage(Stage::Target, || extraction.place_entry(&entry, &mut archive))?;
        next = archive.next_entry()?;
    }
    // Read to the end of the stream, where decoders verify their checksums. The requested checksum
    // also covers the whole stream.
    archive.drain_stream()?;
    let extracted = extraction.finish_extraction().map_err(|error| error.into_error(&archive))?;
    let checksum = readings.verify_digest()?;

    reading.observer.begin_phase(TransferPhase::Resize);
    // This is the last check for a stop request: the next step makes the files visible.
    reading.check_stop()?;
    readings.time_stage(Stage::Target, || -> Result<(), TargetError> {
        let commit = Commit {
            tree: &staging.tree,
            target: &directory,
            overwrite: target.overwrite,
            archive: source.storage_location().and_then(StorageLocation::file_inode),
        };
        commit.move_tree(extracted.names)?;
        // The staging folder is removed before the attributes are applied: its removal changes the
        // directory's time, and would fail if the new mode made the directory read-only.
        drop(staging);
        let Some(root) = extracted.root else { return Ok(()) };
        let adopted = directory.apply_attributes(root);
        adopted.and_then(|()| directory.sync_filesystem()).map_err(TargetError::partly_unpacked)
    })?;
    reading.observer.begin_phase(TransferPhase::Complete);
    Ok(UnpackReport {
        entries: extracted.entries,
        data_bytes: extracted.data_bytes,
        written_bytes: extracted.written_bytes,
        source_bytes: readings.position(),
        checksum,
        layers,
    })
}
