//! Imports from registries (`docker-registry`, filled by skopeo) and from layouts on a disk.

mod access;
mod artifacts;
mod disks;
mod faults;
mod layouts;
mod scene;
mod signatures;
mod streams;
