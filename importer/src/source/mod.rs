//! Where images come from: one module a kind of source, all behind [`datapath::source::Source`].

pub mod access;
pub mod file;
pub mod http;
pub mod imageio;
mod location;
pub mod proxy;
pub mod registry;
pub mod verified;

pub use location::Location;
