//! The frame of every program: what is the same, whatever a program does.
//!
//! ```text
//!  main ─► face ─► command_line   a person: clap, `completions`, `man`, one sentence for a failure
//!            └───► start          a pod: klog flags, log, signals
//!                    both: runtime (coalesce: its threads sleep less often), job (what a signal ends),
//!                          exit (one table of codes)
//! ```
//!
//! A program's `cli` is its own commands and nothing else, its `pod` what CDI's contract says of that pod. Beside the frame is what
//! programs need of their surroundings:
//!
//! * [`flags`] and [`logging`]: the klog flags that pods pass, and the log lines they expect.
//! * [`mod@env`]: the whole environment, every bad variable reported at once; [`quantity`] and [`space`] turn sizes into bytes;
//!   [`names`] says what Kubernetes takes for a name; [`secret`] keeps passwords out of logs.
//! * [`signal`], [`metrics`], [`cpus`], [`mod@cgroup`], [`memory`], [`threads`], [`sockets`]: what runs beside the work, and what it may
//!   use.
//! * [`report`]: the termination message, the last thing a process writes.
//!
//! Every fixed path of a pod is in [`paths`], every name of the protocol between the programs in [`cdi`].
//!
//! The feature `commands` is the frame, `progress` draws a running job, `cluster` is the way to Kubernetes, and `tls` chooses the
//! cryptography of a process. A crate that is no program asks for none of them.

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

/// Chooses the cryptography of TLS for the process; without the feature `tls` there is none to choose.
pub fn install_provider() {
    #[cfg(feature = "tls")]
    crypto::install_provider();
}
