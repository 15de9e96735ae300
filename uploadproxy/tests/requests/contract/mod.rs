//! The contract with CDI's API server, virtctl and browsers, byte for byte: who may upload, where
//! uploads go, what is passed on in both directions, and how failures read.

mod cluster;
mod cors;
mod early;
mod errors;
mod forward;
mod pvc;
mod routes;
mod tokens;

use crate::BINARY;

/// The start of every body of a 502.
const PROXY_ERROR: &str = "error in upload-proxy: http: proxy error: ";
