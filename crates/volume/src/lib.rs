//! The place where a program writes the disk, and how much it may use. It connects the pod's
//! environment (crate `program`) with the data path (crate `datapath`).
//!
//! ```
//! use std::path::Path;
//!
//! use datapath::disk::DiskOptions;
//! use stream::error::TargetError;
//! use volume::{DiskRequest, TargetVolume};
//!
//! /// Settings of a new disk of 10 GiB at `path`. Fails if the volume is too small for it.
//! fn new_disk(path: &Path) -> Result<DiskOptions, TargetError> {
//!     let wanted = DiskRequest { size: Some(10 << 30), ..DiskRequest::default() };
//!     Ok(TargetVolume::for_path(path, wanted.size)?.target_options(&wanted))
//! }
//! ```
//!
//! [`TargetVolume`] is the volume that receives the disk, together with the size that the disk may
//! have. [`limits`] contains the memory and rate limits of a job.

#![forbid(unsafe_code)]

pub mod limits;
mod place;

pub use place::{DiskRequest, TargetVolume, scratch_volume};
