//! Headers of a tar, as GNU tar writes them with `--format=gnu --numeric-owner`, to the byte. No files are touched here.

mod entry;
mod fields;
mod header;

pub use self::entry::{Kind, Meta, Region};
pub use self::header::{MAX_REGIONS, end_bytes, header, more_regions, padding};
