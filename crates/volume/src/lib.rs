//! Shared code of the programs that write volumes. It connects the pod's environment (crate
//! `program`) with the data path (crate `datapath`).
//!
//! [`TargetVolume`] is the place where the disk is written and the size that it may have.
//! [`limits`] holds the memory and rate limits of a job, [`messages`] the error messages that
//! CDI's controllers, tests and users expect. [`watch`] logs the phases of a transfer, and
//! [`figures`] counts what its stages do.

#![forbid(unsafe_code)]

pub mod figures;
pub mod limits;
pub mod messages;
mod place;
pub mod watch;

pub use place::{DiskRequest, TargetVolume, scratch_volume};
