//! The proxy as a whole program: its contract, its clients, its page, its command line, and clusters that are real or hostile.

mod cli;
mod clients;
mod cluster;
mod contract;
mod hostile;
mod mistakes;
mod page;

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-uploadproxy");
