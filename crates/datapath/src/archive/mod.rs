//! Archives: unpacks a tar into a directory, or finds the disk image in a tar and returns it as a
//! stream.
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

mod appliance;
#[cfg(feature = "targets")]
mod commit;
#[cfg(feature = "targets")]
mod directory;
mod disk;
mod entries;
mod expanded;
#[cfg(feature = "targets")]
mod extract;
mod files;
mod find;
#[cfg(fuzzing)]
pub mod fuzzing;
mod header;
mod index;
mod manifest;
mod maps;
mod name;
mod number;
mod pax;
mod payload;
#[cfg(feature = "targets")]
mod placement_error;
mod sparse;
#[cfg(feature = "targets")]
mod staging;
#[cfg(feature = "targets")]
mod tree;
#[cfg(feature = "targets")]
mod unpack;
pub mod write;

pub use self::files::ArchiveFiles;
pub use self::find::{
    ArchiveMember, ArchivedFile, MemberKind, MemberSearch, SearchResult, find_file,
};
pub use self::header::first_name;
pub use self::index::{MemberLocation, index_archive};
pub(crate) use self::payload::open_payload;
#[cfg(feature = "targets")]
pub use self::unpack::{UnpackOptions, UnpackReport, unpack_archive};
pub use crate::error::{ArchiveError, ArchiveErrorKind};
