//! The frame that all programs share: how a process starts, reads its settings, logs, stops and
//! reports.
//!
//! ```
//! use program::{names, quantity};
//!
//! assert_eq!(quantity::parse_bytes("1.5Gi")?, 3 << 29);
//! assert!(names::is_label("my-disk") && !names::is_label("../my-disk"));
//! # Ok::<(), quantity::QuantityError>(())
//! ```
//!
//! ```text
//!  main ─► program_mode ─┬─► command_line   a person: clap, `completions`, `man`, error messages
//!                        └─► start          a pod: klog flags, log, signals
//!                              both: runtime (coalesce: fewer wake-ups), job (stops on a signal),
//!                                    exit (one table of exit codes)
//! ```
//!
//! The module `cli` of a program holds only its own commands, and its module `pod` holds only what
//! CDI's contract says about that pod. The other modules here cover what programs need from their
//! environment:
//!
//! * [`flags`] and [`logging`]: the klog flags that pods pass, and the log lines that are expected
//!   from them.
//! * [`mod@env`]: the environment, with every invalid variable reported at once. [`quantity`] and
//!   [`space`] turn sizes into bytes, [`names`] validates names of Kubernetes objects, and
//!   [`secret`] keeps passwords out of logs.
//! * [`signal`], [`metrics`], [`cpus`], [`mod@cgroup`], [`memory`], [`threads`], [`sockets`]:
//!   signals, metrics, and the resources that the process may use.
//! * [`report`]: the termination message, which a process writes last.
//!
//! Every fixed path of a pod is in [`paths`], and every name of the protocol between the programs
//! is in [`cdi`].
//!
//! The feature `commands` enables the frame itself, `progress` the display of a running job,
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
pub mod cpus;
#[cfg(feature = "tls")]
pub mod crypto;
pub mod env;
#[cfg(feature = "commands")]
pub mod exit;
pub mod flags;
#[cfg(feature = "commands")]
pub mod job;
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
pub mod threads;
mod version;

pub use version::VERSION;

/// Installs the TLS provider of the process. Does nothing without the feature `tls`.
pub fn install_provider() {
    #[cfg(feature = "tls")]
    crypto::install_provider();
}
