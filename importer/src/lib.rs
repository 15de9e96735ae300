//! The importer: sources, and the two faces that run a transfer from them.
//!
//! ```text
//!  Face ─► cli  arguments ────► source ─► datapath::transfer ─► summary, exit code
//!     └──► pod  environment ──► source ─► datapath::transfer ─► termination message, exit code
//! ```

#![forbid(unsafe_code)]

pub mod cli;
pub mod pod;
pub mod source;

/// The program's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
