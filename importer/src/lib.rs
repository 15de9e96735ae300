//! The importer: the faces that run a transfer from one of the [`sources`].
//!
//! ```text
//!  Face ─► cli        arguments ─────────► source ─► datapath::transfer ─► summary, exit code
//!     ├──► pod        environment ───────► source ─► datapath::transfer ─► termination message, exit code
//!     └──► populator  flags and secret ──► source ─► datapath::transfer ─► exit code
//! ```

#![forbid(unsafe_code)]

pub mod cli;
pub mod pod;
pub mod populator;
mod watch;
