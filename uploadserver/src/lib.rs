//! The upload server: one HTTPS listener in front of the data path.
//!
//! ```text
//!  request ─► routes ─► access ─► slot ─► feed ─► intake ═ bridge ═► datapath::transfer ─► disk
//!  (hyper)             client's   one at  socket  packs,             (a thread of its own)   │
//!                      CN         a time  → chunk counts                                     ▼
//!  reply ◄──────────────────────────────── job: running, verified, ended ◄─────────────── outcome
//! ```
//!
//! A [`job`] outlives the request that began it: that makes asynchronous and resumable uploads possible.

#![forbid(unsafe_code)]

mod access;
mod checksum;
pub mod cli;
mod config;
mod failure;
mod feed;
mod form;
mod intake;
mod job;
pub mod pod;
mod reply;
mod resumable;
mod routes;
mod serve;
mod service;
mod slot;
mod status;
mod upload;

use std::ffi::OsString;

use daemon::env::Strings;

/// The program's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Who started the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Face {
    /// A person or script: subcommands.
    CommandLine,
    /// CDI's controller: klog flags and environment variables.
    Pod,
}

impl Face {
    /// Pods pass only klog flags (`-alsologtostderr -v=1`), or nothing besides their environment; whatever
    /// else comes first was typed.
    pub fn choose(arguments: &[OsString], env: &dyn Strings) -> Self {
        match arguments.first().and_then(|first| first.to_str()) {
            Some("-h" | "--help" | "-V" | "--version") => Self::CommandLine,
            Some(flag) if flag.starts_with('-') => Self::Pod,
            None if arguments.is_empty() && env.get(pod::KEY_VARIABLE).is_some() => Self::Pod,
            Some(_) | None => Self::CommandLine,
        }
    }
}
