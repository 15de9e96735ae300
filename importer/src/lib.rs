//! The importer: the two faces that run a transfer from one of the [`sources`].
//!
//! ```text
//!  Face ─► cli  arguments ────► source ─► datapath::transfer ─► summary, exit code
//!     └──► pod  environment ──► source ─► datapath::transfer ─► termination message, exit code
//! ```

#![forbid(unsafe_code)]

pub mod cli;
pub mod pod;

/// The program's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
