//! Clients that disconnect, stall or send nonsense. The next attempt must always work.

mod crowds;
mod cuts;
mod forms;
mod http2;
mod stalls;
mod threads;

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-uploadserver");
