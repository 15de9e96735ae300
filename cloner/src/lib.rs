//! The cloner: sends a volume to the upload server that fills its copy.
//!
//! ```text
//!  source ──► outlet ──► encoders ═══► outgoing ──► upload server
//!  device,    pieces,    snappy or     in order,    (client)
//!  tar        zeros      zstd          body
//! ```
//!
//! One thread reads, several encode, and what is ready is sent in order; what is between them is bounded in bytes
//! ([`datapath::encode::outgoing`]).
//!
//! A source that breaks breaks the body, so that no server takes a part for the whole. Success takes a 2xx and the
//! end of the stream having been handed over.

#![forbid(unsafe_code)]

pub mod cli;
mod client;
mod clone;
mod estimate;
pub mod pod;
mod source;
