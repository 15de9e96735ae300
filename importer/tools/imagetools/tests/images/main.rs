//! What is told about disk images, against QEMU's own program.

mod detection;
mod info;
mod samples;
