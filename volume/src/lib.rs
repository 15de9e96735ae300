//! What the programs that write disks share: they know both the pod's surroundings (`daemon`) and the data path.
//!
//! [`Volume`] is where the disk goes and how large it may be, [`work`] runs the job under signals, [`limits`] says
//! what it may cost, [`wording`] has the
//! sentences that CDI's controllers, tests and users know, [`watch`] logs how far the data path is, and [`terminal`] draws it.

#![forbid(unsafe_code)]

pub mod clone;
pub mod limits;
mod place;
pub mod terminal;
pub mod watch;
pub mod wording;
pub mod work;

pub use place::{Volume, Wanted};
