//! Descriptions of disk images, compared with those of QEMU's own program.

mod detection;
mod info;
mod samples;
