//! Archives: reads a tar as a stream, finds the disk image in it, and writes the headers of tars.
//!
//! ```text
//!  decoded stream ──► entries ──────────► the one disk of an OVA or a clone, as a stream
//!                     headers, pax,  └──► every entry, for who unpacks it (`datapath::unpack`)
//!                     sparse maps
//! ```
//!
//! Nothing here touches the filesystem.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod appliance;
mod entries;
mod files;
mod find;
mod header;
mod index;
#[doc(hidden)] // for the fuzz targets
pub mod manifest;
mod maps;
mod name;
mod number;
mod pax;
mod payload;
mod sparse;
pub mod write;

pub use self::entries::{TarEntry, TarEntryKind, TarReader, unsupported_error};
pub use self::files::ArchiveFiles;
pub use self::find::{ArchivedFile, MemberSearch, SearchResult, find_file};
pub use self::header::first_name;
pub use self::index::{MemberLocation, index_archive};
pub use self::name::{PATH_MAX_BYTES, path_components, printable_name};
pub use self::number::TarTimestamp;
pub use self::payload::open_payload;
