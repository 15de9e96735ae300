//! Clients that break off, stall or send nonsense: the next attempt always works.

mod crowds;
mod cuts;
mod forms;
mod http2;
mod stalls;
mod threads;

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-uploadserver");
