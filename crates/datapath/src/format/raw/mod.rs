//! Raw images: the stream is the disk, as far as no footer ends it.

#[cfg(feature = "targets")]
mod copy;
mod footer;
mod tail;

#[cfg(feature = "targets")]
pub use self::copy::{CopiedDisk, copy_raw};
pub use self::footer::{EndingKind, SECTOR};
pub use self::tail::measure_disk;
