//! Raw images: where the disk ends, and the footer that may follow it.

mod footer;
mod tail;

pub use self::footer::{EndingKind, SECTOR};
pub use self::tail::{TailBuffer, measure_disk};
