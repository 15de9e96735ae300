//! Archives: a tar whose files become those of a directory, or whose disk image becomes a disk.
//!
//! ```text
//!  source ──► meter ─► decode ─► entries ──► extraction ──► staging folder ──► commit
//!                                headers,    files, links,   inside the         renames that
//!                                pax, maps   directories     target             replace
//! ```
//!
//! The result is what GNU `tar --preserve-permissions --no-same-owner -x` makes of the same archive. What could reach
//! beyond the target is refused instead of being worked around: absolute names, `..`, entries behind symbolic links,
//! devices. Nothing is to be seen in the target before all of the archive was read and verified. The renames that follow are
//! the only ones that can leave a part of it, if one of them fails or the process is killed; the error says so.
//!
//! GNU tar strips or skips some of that and goes on: then the user gets something else than what was sent. Symbolic
//! links may lead anywhere, because they are never followed.

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

pub use self::find::{ArchiveMember, ArchivedFile, MemberKind, MemberSearch, SearchResult, find_file};
pub use self::index::{MemberLocation, index_archive};
pub(crate) use self::payload::open_payload;
#[cfg(feature = "targets")]
pub use self::unpack::{UnpackOptions, UnpackReport, unpack_archive};
pub use crate::error::{ArchiveError, ArchiveErrorKind};
