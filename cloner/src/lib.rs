//! The cloner: sends a volume to the upload server that fills its copy.
//!
//! ```text
//!  source ──► outlet ──► encoders ═══► outgoing ──► upload server
//!  device,    pieces,    snappy or     in order,    (client)
//!  tar        zeros      zstd          body
//! ```
//!
//! One thread reads, and several threads encode. Encoded pieces are sent in order. The number of
//! bytes in transit between the threads is limited ([`codec::encode::outgoing`]).
//!
//! If reading the source fails, the request body is aborted, so that no server mistakes a part for
//! the whole volume. A clone succeeds only if the server answers with a 2xx status after the end
//! of the stream was passed to the network.

#![forbid(unsafe_code)]

pub mod cli;
mod client;
mod clone;
mod confine;
mod estimate;
pub mod pod;
mod serve;
mod source;
