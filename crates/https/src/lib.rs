//! HTTPS: TLS for clients and servers, and the listener that serves requests over it.
//!
//! * [`tls`]: whom clients and servers trust, and the streams between them.
//! * [`listener`] accepts connections, reads the heads of requests, and bounds both in time and number; [`body`] and [`reply`] are
//!   the two ends of an exchange.
//! * [`client`] sends requests to one server.
//! * [`metrics`] serves those of a pod.

#![forbid(unsafe_code)]

pub mod body;
pub mod client;
mod delegate;
pub mod listener;
pub mod metrics;
pub mod reply;
pub mod tls;
