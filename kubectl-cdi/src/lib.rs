//! `kubectl-cdi`: uploads and imports of disk images, from a laptop.
//!
//! ```text
//!  cli ─► image     what the file is, and how large its disk
//!      ├► remote    how large the disk at a URL is
//!      ├► cluster   DataVolumes, claims, tokens, what is being waited for
//!      └► send      the bytes: without zeros, compressed if the network is slow, from where the server is
//! ```

#![forbid(unsafe_code)]

mod cli;
pub mod cluster;
mod image;
mod remote;
mod send;

pub use cli::main;
