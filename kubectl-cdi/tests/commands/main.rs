//! The client: what it asks of a real cluster, whole uploads, and clusters that mean harm.

mod cluster;
mod hostile;
mod mistakes;
mod upload;

const BINARY: &str = env!("CARGO_BIN_EXE_kubectl-cdi");
