//! The contract with CDI's API server, virtctl and browsers: who is let in, where uploads go, what is passed on both ways
//! and how failures read, byte for byte.

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
