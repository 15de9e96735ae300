//! Where images come from: one module a kind of source, all behind [`datapath::source::Source`].

#![forbid(unsafe_code)]

pub mod access;
pub mod file;
pub mod gcs;
pub mod http;
pub mod imageio;
mod location;
pub mod nbd;
pub mod objects;
pub mod policy;
pub mod proxy;
mod pumped;
pub mod registry;
mod retry;
pub mod s3;
pub mod vddk;
pub mod verified;
mod words;
mod xml;

pub use location::Location;
pub use retry::NO_PROGRESS_LIMIT;
