//! Raw images: the stream is the disk, except for a footer at its end.

#[cfg(feature = "targets")]
mod copy;
mod footer;
mod tail;

#[cfg(feature = "targets")]
pub(crate) use self::copy::pass_in_order;
#[cfg(feature = "targets")]
pub use self::copy::{CopiedDisk, copy_raw};
pub use self::footer::{EndingKind, SECTOR};
pub use self::tail::measure_disk;
