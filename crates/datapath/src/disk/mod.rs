//! Writes the disk: a regular file or a block device.
//!
//! [`Disk`] owns the file and guarantees its invariants: before [`Disk::commit`] it does not look
//! like a complete disk, and everything that the image does not define reads as zeros. [`Writer`]
//! takes extents in any order and spreads the work over threads.
//!
//! Partition tables, boot sectors and superblocks begin in the first MiB, so it is held back until
//! the commit. On a device it is zeroed and synced before anything else is written. No disk is
//! mapped into memory, because an I/O error would then arrive as a signal.

mod batch;
mod blank;
mod coverage;
mod direct;
mod handle;
mod open;
mod options;
mod pacer;
mod place;
mod slices;
mod unfinished;
mod verified_prefix;
mod write;
mod writer;
mod zeroing;

pub use self::{
    blank::create_blank,
    handle::Disk,
    options::{CacheMode, DiskOptions},
    place::{device_size, folder_of, free_space, is_block_device},
    unfinished::{leave_unfinished, remove_stale, remove_unfinished},
    verified_prefix::VerifiedPrefix,
    writer::{Writer, with_writer},
};
pub(crate) use self::{pacer::FlushPacer, place::refuse_source, writer::with_timed_writer};
