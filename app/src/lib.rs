//! What the `main` of every binary begins with.
//!
//! [`face`] tells who started the program: CDI's controller, or a person. [`start`] begins a pod's process the way pods
//! are started, [`command_line`] has what all command lines share, and [`panics`] turns a bug into a sentence. With the feature `cluster` there is also the way to
//! Kubernetes.

#![forbid(unsafe_code)]

#[cfg(feature = "cluster")]
pub mod cluster;
pub mod command_line;
pub mod face;
pub mod panics;
pub mod start;
