//! The needs of every pod process of which no data path knows: settings, logs, signals, metrics, TLS and the
//! message that a container leaves behind.
//!
//! A binary uses the modules in this order:
//!
//! 1. [`flags`] and [`logging`]: the klog flags that pods pass, then the log lines they expect.
//! 2. [`mod@env`]: the whole environment, every bad variable reported at once; [`quantity`] and [`space`]
//!    turn sizes into bytes; [`secret`] keeps passwords out of logs.
//! 3. [`listener`], [`body`] and [`reply`] serve HTTPS; [`signal`], [`metrics`], [`tls`], [`cpus`], [`mod@cgroup`], [`threads`]: what
//!    runs beside the work, and what it may use.
//! 4. [`report`]: the termination message, the last thing a process writes.
//!
//! Without the feature `https` there are neither TLS nor listener, replies and metrics.
//!
//! Every fixed path of a pod is in [`paths`], every name of the protocol between the programs in [`cdi`].

#![forbid(unsafe_code)]

#[cfg(feature = "https")]
pub mod body;
pub mod cdi;
pub mod cgroup;
pub mod cpus;
pub mod env;
pub mod flags;
#[cfg(feature = "https")]
pub mod listener;
pub mod logging;
pub mod memory;
#[cfg(feature = "https")]
pub mod metrics;
pub mod panics;
pub mod paths;
pub mod quantity;
#[cfg(feature = "https")]
pub mod reply;
pub mod report;
pub mod secret;
pub mod signal;
pub mod sockets;
pub mod space;
pub mod threads;
#[cfg(feature = "https")]
pub mod tls;
mod version;

pub use version::VERSION;

/// Chooses the cryptography of TLS for the process; without the feature `https` there is none to choose.
pub fn install_provider() {
    #[cfg(feature = "https")]
    tls::install_provider();
}
