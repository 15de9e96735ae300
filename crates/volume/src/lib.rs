//! The common part of programs that write volumes: they know both the pod's surroundings (`daemon`) and the data path.
//!
//! [`TargetVolume`] is where the disk goes and how large it may be, [`limits`] says what the job may cost, [`messages`] has the sentences that
//! CDI's controllers, tests and users know, [`watch`] logs how far the data path is, and [`figures`] counts what its stages do.

#![forbid(unsafe_code)]

pub mod figures;
pub mod limits;
pub mod messages;
mod place;
pub mod watch;

pub use place::{DiskRequest, TargetVolume, scratch_volume};
