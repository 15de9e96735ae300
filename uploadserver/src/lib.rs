//! The upload server: one HTTPS listener in front of the data path.
//!
//! ```text
//!  request ─► routes ─► access ─► slot ─► feed ─► intake ═ bridge ═► datapath::transfer ─► disk
//!  (hyper)             client's   one at  socket  packs,             (a thread of its own)   │
//!                      CN         a time  → chunk counts                                     ▼
//!  reply ◄──────────────────────────────── job: running, verified, ended ◄─────────────── outcome
//! ```
//!
//! A job outlives the request that began it: that makes asynchronous and resumable uploads possible.

#![forbid(unsafe_code)]

mod access;
mod checksum;
pub mod cli;
mod config;
mod failure;
mod feed;
mod figures;
mod form;
mod intake;
mod job;
pub mod pod;
mod reply;
mod representation;
mod resumable;
mod routes;
mod serve;
mod server;
mod service;
mod slot;
mod status;
mod turn;
mod upload;

/// The program's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
