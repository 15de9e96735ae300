//! The client: requests to a real cluster, whole uploads, and hostile clusters.

mod cluster;
mod download;
mod hostile;
mod mistakes;
mod upload;

const BINARY: &str = env!("CARGO_BIN_EXE_kubectl-cdi");
