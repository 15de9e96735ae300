//! Transfers of raw disks, deltas and archives: checks the target, whatever fails on the way.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod archive;
mod delta;
mod faults;
mod local;
mod stated;
mod writer;
mod xz;
