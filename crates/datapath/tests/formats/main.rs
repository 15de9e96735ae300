//! Imports images of every format and layout, sound, damaged, truncated and split. Each must give
//! the disk that qemu-img reads, or a typed error.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod check;
mod corruption;
mod footers;
mod ladder;
mod listed;
mod metadata;
mod qemu;
mod samples;
mod seeds;
mod splitting;
mod truncation;
