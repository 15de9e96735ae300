//! Copies raw images: the stream is the disk, except for a footer at its end.

mod copy;

pub(crate) use self::copy::pass_in_order;
pub use self::copy::{CopiedDisk, copy_raw};
