//! Code shared by the programs that write volumes. It connects the pod's environment (crate
//! `program`) with the data path (crate `datapath`).
//!
//! ```
//! use std::path::Path;
//!
//! use datapath::disk::DiskOptions;
//! use datapath::error::TargetError;
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
//! have. [`limits`] contains the memory and rate limits of a job, and [`messages`] the error
//! messages that CDI's controllers, tests and users expect. [`watch`] logs the phases of a
//! transfer, and [`figures`] counts the work of its stages.

#![forbid(unsafe_code)]

pub mod figures;
pub mod limits;
pub mod messages;
mod place;
pub mod watch;

pub use place::{DiskRequest, TargetVolume, scratch_volume};
