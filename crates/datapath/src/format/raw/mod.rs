//! Raw images: the stream is the disk, as far as no footer ends it.

mod copy;
mod footer;
mod tail;

pub use self::copy::{Copied, copy, length};
pub use self::footer::{Ending, SECTOR};
