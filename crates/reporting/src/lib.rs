//! Reports of the programs that move disks, to CDI's controllers and to people: error messages, log
//! lines about the phases of a transfer, and metrics.
//!
//! It connects the frame of every program (crate `program`) with the progress of a transfer
//! ([`stream::observe`]).

#![forbid(unsafe_code)]

pub mod figures;
pub mod messages;
pub mod watch;
