//! The target of an import: which process owns it, what is written to it, and what is left of it
//! when the importer is killed or a system call fails.

mod backups;
mod confined;
mod faults;
mod kill;
mod ownership;
mod scratch;
mod sweep;
mod unpack;

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-importer");
