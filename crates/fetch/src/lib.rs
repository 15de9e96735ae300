//! Reads objects from servers: HTTP, the engine for ranges and several connections, retries, and
//! what decides which server may see which secret.
//!
//! ```text
//!  Network (settings) ─► HttpSource, or a protocol above this crate
//!                          │ RemoteObject
//!                          └─► engine ─► segments over connections ─► SourceBody
//! ```
//!
//! [`http`] is the source that other crates build on: registries, object stores and hypervisors.
//! [`policy`] is asked before a secret is sent, and [`file`](mod@file) reads this machine.

#![forbid(unsafe_code)]

pub mod address;
mod credentials;
pub mod engine;
pub mod error;
pub mod file;
pub mod http;
pub mod messages;
pub mod network;
mod pipe;
pub mod pod;
pub mod policy;
pub mod proxy;
pub mod ranges;
pub mod retry;
pub mod scheme;
pub mod verified;
pub mod whole;
pub mod wrapped;

pub use credentials::BasicCredentials;
pub use engine::ObjectRegions;
pub use network::Network;
pub use retry::RetryPolicy;
