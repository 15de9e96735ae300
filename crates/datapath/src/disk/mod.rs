//! The disk that is written: a regular file or a block device.
//!
//! [`Disk`] owns the file and what must be true of it: nothing complete-looking before [`Disk::commit`], zeros where
//! the image says nothing. [`Writer`] takes extents in any order and spreads the work over threads.
//!
//! Partition tables, boot sectors and superblocks begin in the first MiB, so it is held back until the commit; on a
//! device it is zeroed and synced before anything else is written. No disk is mapped into memory, where an I/O error
//! would be a signal.

#[cfg(feature = "targets")]
mod batch;
#[cfg(feature = "targets")]
mod blank;
#[cfg(feature = "targets")]
mod coverage;
#[cfg(feature = "targets")]
mod direct;
#[cfg(feature = "targets")]
mod handle;
#[cfg(feature = "targets")]
mod inflate;
#[cfg(feature = "targets")]
mod kind;
mod marks;
#[cfg(feature = "targets")]
mod open;
#[cfg(feature = "targets")]
mod options;
#[cfg(feature = "targets")]
mod pacer;
#[cfg(feature = "targets")]
mod place;
#[cfg(feature = "targets")]
mod slices;
#[cfg(feature = "targets")]
mod unfinished;
#[cfg(feature = "targets")]
mod verified_prefix;
#[cfg(feature = "targets")]
mod write;
#[cfg(feature = "targets")]
mod writer;
#[cfg(feature = "targets")]
mod zeroing;

pub use self::marks::{HELD_BYTES, MARK_BYTES, MAX_MARKS, PrefixCrc, PrefixCrcError, marks_of};
#[cfg(feature = "targets")]
pub use self::{
    blank::create_blank,
    coverage::Coverage,
    handle::Disk,
    options::{CacheMode, DiskOptions},
    place::{device_size, folder_of, free_space, is_block_device},
    unfinished::{remove_stale, remove_unfinished},
    verified_prefix::VerifiedPrefix,
    writer::{Writer, with_writer},
};
#[cfg(feature = "targets")]
pub(crate) use self::{inflate::Inflater, pacer::FlushPacer, place::refuse_source};
