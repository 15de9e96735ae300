//! What the programs that write disks share: they know both the pod's surroundings (`daemon`) and the data path.
//!
//! [`volume`] is where the disk goes and how large it may be, [`work`] runs the job under signals, [`wording`] has the
//! sentences that CDI's controllers, tests and users know, [`pod`] starts a process the way pods are started, [`face`]
//! tells whether it is one, and [`manual`] is what a command line prints about itself.

#![forbid(unsafe_code)]

pub mod face;
pub mod manual;
pub mod pod;
pub mod volume;
pub mod watch;
pub mod wording;
pub mod work;
