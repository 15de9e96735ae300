//! Raw images: where the disk ends, and the footer that may follow it.

mod footer;
mod tail;

pub use self::footer::{EndingKind, SECTOR};
pub(crate) use self::tail::measure_disk;
pub use self::tail::pass_disk;
