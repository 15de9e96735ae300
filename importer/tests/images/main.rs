//! Imports of images, sound and malicious: each becomes the disk that qemu-img makes, or is
//! refused. Also the command line.

mod check;
mod cli;
mod convert;
mod endless;
mod foreign;
mod formats;
mod hostile;
mod mistakes;
mod oracle;
mod pack;
mod qcow2_matrix;
mod terminal;
mod to_qcow2;

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-importer");
