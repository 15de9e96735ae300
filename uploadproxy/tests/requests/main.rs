//! The proxy as a whole program: its contract, clients, page and command line, in real and in
//! hostile clusters.

mod cli;
mod clients;
mod cluster;
mod contract;
mod hostile;
mod mistakes;
mod page;

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-uploadproxy");
