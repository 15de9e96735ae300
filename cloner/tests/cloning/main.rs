//! The cloner as a whole program: what it sends, complete clones, and what CDI sees of its pod.

mod cli;
mod clone;
mod contract;
mod filesystems;
mod mistakes;
mod serve;
mod streams;

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-cloner");
