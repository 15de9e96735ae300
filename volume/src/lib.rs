//! The common part of programs that write volumes: they know both the pod's surroundings (`daemon`) and the data path.
//!
//! [`Volume`] is where the disk goes and how large it may be, [`limits`] says what the job may cost, [`wording`] has the sentences that
//! CDI's controllers, tests and users know, and [`watch`] logs how far the data path is.

#![forbid(unsafe_code)]

pub mod limits;
mod place;
pub mod watch;
pub mod wording;

pub use place::{Volume, Wanted};
