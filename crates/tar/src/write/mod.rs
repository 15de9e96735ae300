//! Encodes the headers of a tar. The bytes are identical to the output of GNU tar with
//! `--format=gnu --numeric-owner`. This module does no I/O.

mod entry;
mod fields;
mod header;

pub use self::entry::{DataRegion, EntryAttributes, NewEntryKind};
pub use self::header::{MAX_REGIONS, encode_header, end_bytes, more_regions, padding_bytes};
