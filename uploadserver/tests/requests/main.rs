//! The server as a whole program: its contract, clients and command line, and the results of
//! uploads, clones and archives.

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
