//! Sources of images, one module for each kind, all behind [`datapath::source::Source`].
//!
//! ```
//! use sources::{SourceLocation, SourceOptions};
//!
//! let options = SourceOptions::default();
//! let location = SourceLocation::parse("https://example.org/disk.qcow2", options)?;
//! assert!(!location.is_local());
//! assert!(SourceLocation::parse("gopher://example.org/disk", SourceOptions::default()).is_err());
//! # Ok::<(), datapath::error::SourceError>(())
//! ```
//!
//! ```text
//!  command line ─► SourceLocation::parse ─┐
//!  pod ──────────► SourceLocation ────────┴─► open_source(place, network) ─► Source
//! ```
//!
//! Windows lacks `place`, `nbd` and `vddk`, which `kubectl-cdi` does not need.
//!
//! [`place`] lists all kinds of sources. [`network`] holds the settings for reaching servers.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(unix),
    allow(dead_code, unused_imports, reason = "what only `place` and programs for Linux use")
)]

mod address;
pub mod backup_map;
mod checkpoints;
mod credentials;
mod engine;
mod error;
pub mod file;
pub mod gcs;
pub mod glance;
pub mod http;
pub mod imageio;
mod messages;
#[cfg(unix)]
pub mod nbd;
pub mod network;
pub mod objects;
mod pipe;
#[cfg(unix)]
pub mod place;
pub mod pod;
pub mod policy;
pub mod proxy;
pub mod publisher;
pub mod ranges;
pub mod registry;
mod retry;
pub mod s3;
pub mod scheme;
#[cfg(unix)]
pub mod vddk;
pub mod verified;
mod xml;

pub use checkpoints::Checkpoints;
pub use credentials::BasicCredentials;
pub use engine::ObjectRegions;
pub use network::Network;
#[cfg(unix)]
pub use place::{OpenedSource, SourceInfo, SourceLocation, SourceOptions, open_source};
pub use retry::RetryPolicy;
