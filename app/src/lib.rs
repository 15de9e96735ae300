//! The frame of every program: what is the same, whatever a program does.
//!
//! ```text
//!  main ─► face ─► command_line   a person: clap, `completions`, `man`, one sentence for a failure
//!            └───► start          a pod: klog flags, log, signals, metrics
//!                    both: runtime (coalesce: its threads sleep less often), job (what a signal ends),
//!                          exit (one table of codes)
//! ```
//!
//! A program's `cli` is its own commands and nothing else, its `pod` what CDI's contract says of that pod. The feature `metrics` serves
//! those of a pod, `progress` draws a running job, and `cluster` is the way to Kubernetes.

#![forbid(unsafe_code)]

#[cfg(feature = "cluster")]
pub mod cluster;
mod coalesce;
pub mod command_line;
pub mod exit;
pub mod face;
pub mod job;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "progress")]
pub mod progress;
pub mod start;
