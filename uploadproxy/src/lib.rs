//! The upload proxy: one HTTPS listener in front of the upload servers of a cluster.
//!
//! ```text
//!  request ─► routes ─► token ─► limits ─► volumes ─► upstream ═► upload server of the PVC
//!  (hyper)              whose    how many  which pod,  TLS,        │
//!                       PVC      how fast  is it ready connections │
//!  reply ◄─ cors ◄─ forward ◄──────────────────────────────────────┘
//! ```
//!
//! It carries bytes and knows nothing of images: neither `datapath` nor `diskimage` is linked. Every upload has an
//! `exchange`, which meters it and writes its line in the log when both directions have ended.

#![forbid(unsafe_code)]

mod api;
mod certificates;
pub mod cli;
mod config;
mod cors;
mod download;
mod exchange;
mod figures;
mod forward;
mod heads;
mod identity;
mod interim;
mod limits;
mod names;
mod outcome;
mod pace;
mod page;
pub mod pod;
mod pool;
mod profile;
mod routes;
mod serve;
mod service;
mod token;
mod upload;
mod upstream;
mod volumes;

/// The program's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
