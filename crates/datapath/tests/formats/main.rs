//! Small images of every format and layout, damaged, cut and split: the disk that qemu-img makes of them, or a typed error.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod check;
mod corruption;
mod listed;
mod metadata;
mod prefixes;
mod samples;
mod seeds;
mod splits;
