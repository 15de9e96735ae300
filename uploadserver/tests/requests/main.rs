//! The server as a whole program: its contract, its clients, its command line, and what uploads, clones and archives become.

mod archive;
mod cli;
mod clients;
mod clone;
mod contract;
mod formats;
mod mistakes;
mod resume;
mod scratch;

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-uploadserver");
