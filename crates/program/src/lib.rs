//! The framework that all programs share: how a process starts, reads its settings, logs, stops
//! and reports errors.
//!
//! ```
//! use program::{names, quantity};
//!
//! assert_eq!(quantity::parse_bytes("1.5Gi")?, 3 << 29);
//! assert!(names::is_label("my-disk") && !names::is_label("../my-disk"));
//! # Ok::<(), String>(())
//! ```
//!
//! ```text
//!  main ─► program_mode ─┬─► command_line   a person: clap, `completions`, `man`, error messages
//!                        └─► start          a pod: klog flags, log, signals
//!                              both: runtime (coalesce: fewer wake-ups), job (stops on a signal),
//!                                    exit (one table of exit codes)
//! ```
//!
//! A program's module `cli` contains only its own commands, and its module `pod` contains only
//! what CDI's contract requires of that pod. The other modules in this crate cover what programs
//! need from their environment:
//!
//! * [`flags`] and [`logging`]: the klog flags that pods pass, and the log lines that CDI expects
//!   from pods.
//! * [`mod@env`]: the environment; all invalid variables are reported together. [`quantity`] and
//!   [`space`] convert sizes to bytes, [`names`] validates the names of Kubernetes objects, and
//!   [`secret`] keeps passwords out of logs.
//! * [`signal`], [`metrics`], [`mod@cgroup`], [`memory`], [`threads`], [`sockets`]:
//!   signals, metrics, and the resources that the process may use.
//! * [`report`]: the termination message, which is the last thing that a process writes.
//!
//! All fixed paths of a pod are in [`paths`], and all names of the protocol between the programs
//! are in [`cdi`].
//!
//! The feature `commands` enables the framework itself, `progress` the display of a running job,
//! `cluster` the configuration of a Kubernetes client, and `tls` the choice of a TLS provider for
//! the process. Each crate enables only the features that it needs.

#![forbid(unsafe_code)]

pub mod cdi;
pub mod cgroup;
#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "commands")]
mod coalesce;
mod color;
#[cfg(feature = "commands")]
pub mod command_line;
#[cfg(feature = "commands")]
mod cpus;
#[cfg(feature = "tls")]
pub mod crypto;
pub mod env;
#[cfg(feature = "commands")]
pub mod exit;
pub mod flags;
#[cfg(feature = "commands")]
pub mod job;
pub mod limited;
#[cfg(feature = "server")]
pub mod local_http;
pub mod logging;
pub mod memory;
pub mod metrics;
pub mod names;
pub mod panics;
pub mod paths;
#[cfg(feature = "commands")]
pub mod program_mode;
#[cfg(feature = "progress")]
pub mod progress;
pub mod quantity;
pub mod report;
pub mod secret;
pub mod signal;
pub mod sockets;
pub mod space;
#[cfg(feature = "commands")]
pub mod start;
pub mod stdout;
pub mod threads;
mod version;

pub use version::VERSION;

/// Installs aws-lc-rs as the TLS provider of the process, for libraries that accept no
/// configuration. Later calls, and calls without the feature `tls`, have no effect.
pub fn install_provider() {
    #[cfg(feature = "tls")]
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        tracing::debug!("a TLS provider was already installed");
    }
}
