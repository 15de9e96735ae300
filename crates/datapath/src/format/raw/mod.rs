//! Raw images: the stream is the disk, as far as no footer ends it.

mod copy;
mod footer;
mod tail;

pub use self::copy::{CopiedDisk, copy_raw, measure_disk};
pub use self::footer::{EndingKind, SECTOR};
