//! Headers of a tar, as GNU tar writes them with `--format=gnu --numeric-owner`, to the byte. No files are touched here.

mod entry;
mod fields;
mod header;

pub use self::entry::{DataRegion, EntryAttributes, NewEntryKind};
pub use self::header::{MAX_REGIONS, encode_header, end_bytes, more_regions, padding_bytes};
