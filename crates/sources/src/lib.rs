//! The kinds of sources, all behind [`stream::source::Source`].
//!
//! ```
//! use sources::{SourceLocation, SourceOptions};
//!
//! let options = SourceOptions::default();
//! let location = SourceLocation::parse("https://example.org/disk.qcow2", options)?;
//! assert!(!location.is_local());
//! assert!(SourceLocation::parse("gopher://example.org/disk", SourceOptions::default()).is_err());
//! # Ok::<(), stream::error::SourceError>(())
//! ```
//!
//! ```text
//!  command line ─► SourceLocation::parse ─┐
//!  pod ──────────► SourceLocation ────────┴─► open_source(place, network) ─► Source
//! ```
//!
//! [`place`] lists the kinds. They are in crates of their own: files and HTTP in `fetch`, object
//! stores in `stores`, container images in `oci`, other hypervisors in `hypervisors`.

#![forbid(unsafe_code)]

pub mod backup_map;
pub mod place;

pub use place::{OpenedSource, SourceInfo, SourceLocation, SourceOptions, open_source};
