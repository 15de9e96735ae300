//! The target: whose it is, what is written, and what is left of it when the importer is killed or the system fails.

mod faults;
mod kill;
mod ownership;
mod scratch;
mod sweep;
mod unpack;

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-importer");
