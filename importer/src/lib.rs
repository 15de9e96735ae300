//! The importer: transfers an image from one of the [`sources`] to a disk, or an archive to a
//! directory.
//!
//! It has three modes, which differ in where their input comes from and in how they report the
//! result:
//!
//! ```text
//!  cli        arguments ─────┐                                ┌─► summary, exit code
//!  pod        environment ───┼─► source ─► datapath::transfer ┼─► termination message, exit code
//!  populator  flags, secret ─┘                                └─► exit code
//! ```

#![forbid(unsafe_code)]

pub mod cli;
mod confine;
pub mod pod;
pub mod populator;
mod watch;
