//! Descriptions of disk images, compared with those of QEMU's own program.

mod detection;
mod info;
mod samples;

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-importer-tools");
