//! Archives: a tar whose files become those of a directory, or whose disk image becomes a disk.
//!
//! ```text
//!  source ──► meter ─► decode ─► entries ──► extraction ──► staging folder ──► commit
//!                                headers,    files, links,   inside the         renames that
//!                                pax, maps   directories     target             can be undone
//! ```
//!
//! What comes out is what GNU `tar --preserve-permissions --no-same-owner -x` makes of the same archive. What could reach
//! beyond the target is refused instead of being worked around: absolute names, `..`, entries behind symbolic links,
//! devices. Nothing is to be seen in the target before all of the archive was read and verified, and a failed attempt leaves
//! it as it was.

mod appliance;
mod commit;
mod directory;
mod disk;
mod entries;
mod error;
mod expanded;
mod extract;
mod failure;
mod find;
#[cfg(fuzzing)]
pub mod fuzzing;
mod header;
mod index;
mod journal;
mod manifest;
mod maps;
mod name;
mod number;
mod pax;
mod sparse;
mod staging;
mod tree;
pub mod write;

use std::path::PathBuf;

pub(crate) use appliance::Appliance;
pub(crate) use disk::DiskImage;
pub use error::{ArchiveError, ArchiveErrorKind};
pub use find::{FileInArchive, Found, Member, MemberKind, Search, find_file};
pub use index::{Place, index};

use self::entries::Entries;
use self::extract::Extraction;
use self::staging::Staging;
use self::tree::Tree;
use crate::error::Error;
use crate::observe::Phase;
use crate::recognize::{Unwrapped, unwrap};
use crate::source::Source;
use crate::transfer::{self, Envelope, verify_checksum};

/// Where to unpack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// An existing directory. What is in it stays, but for files that the archive has as well.
    pub dir: PathBuf,
    /// Bytes of file data that may be written.
    pub available: u64,
}

/// What was unpacked.
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
///
/// Of `options` the format, the route, the workers and the scratch directory play no role, and
/// the envelopes of a tar are those of a device; [`Envelope::Ova`] is [`Envelope::Sniffed`].
pub fn unpack(source: &dyn Source, target: &Options, options: &transfer::Options) -> Result<Report, Error> {
    options.observer.phase(Phase::Info);
    let envelope = match options.envelope {
        Envelope::Sniffed | Envelope::Bare | Envelope::Ova => Envelope::Sniffed,
        Envelope::Snappy | Envelope::SnappyTar => Envelope::Snappy,
        Envelope::Frames | Envelope::FramesTar => Envelope::Frames,
    };
    let Unwrapped {
        mut layers,
        input,
        readings,
    } = unwrap(source, options, envelope, &options.limits)?;
    layers.push("tar");
    let mut archive = Entries::new(Box::new(input));
    // Whatever is no archive is refused before the target is touched.
    let mut next = archive.next_entry()?;

    options.observer.phase(Phase::Transfer);
    let staging = Staging::create(&target.dir)?;
    let tree = Tree::new(&staging.tree, &staging.target);
    let mut extraction = Extraction::new(tree, target.available, &*options.observer);
    while let Some(entry) = next {
        extraction.place(&entry, &mut archive)?;
        next = archive.next_entry()?;
    }
    archive.drain()?;
    let extracted = extraction.finish().map_err(|failure| failure.blame(&archive))?;
    let checksum = verify_checksum(options, &readings)?;

    options.observer.phase(Phase::Resize);
    // The last look: what follows makes the files visible.
    if options.stop.is_cancelled() {
        return Err(Error::Stopped);
    }
    commit::commit(&staging, extracted.names, source.storage()).map_err(|failure| failure.blame(&archive))?;
    staging.close(extracted.root)?;
    options.observer.phase(Phase::Complete);
    Ok(Report {
        entries: extracted.entries,
        data_bytes: extracted.data_bytes,
        written_bytes: extracted.written_bytes,
        source_bytes: readings.position(),
        checksum,
        layers,
    })
}
