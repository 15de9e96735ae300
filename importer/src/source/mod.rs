//! Where images come from: one module a kind of source, all behind [`datapath::source::Source`].

pub mod access;
pub mod file;
pub mod http;
mod location;
pub mod nbd;
pub mod proxy;
mod pumped;
mod retry;
pub mod verified;

pub use location::Location;
