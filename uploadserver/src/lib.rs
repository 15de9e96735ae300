//! The upload server: one HTTPS listener in front of the data path.
//!
//! ```text
//! request ─► routes ─► access ─► slot ─► payload ─► intake ═ bridge ═► write ─► datapath ─► disk
//! (hyper)             client's   one at  socket     packs,             (a thread of its own)  │
//!                     CN         a time  → chunk    counts                                    ▼
//! reply ◄──────────────────────────────── job: running, verified, ended ◄──────────────── outcome
//! ```
//!
//! `answer` takes each request through these two parts. `request` reads the headers before
//! anything is decided, and `refusal` lists the reasons for which a request is rejected. `server`
//! holds the state that all requests share. `lifetime` is the process: it listens, waits for a
//! reason to exit, and reports how it ended. The command `serve` and the pod configure it.
//!
//! An upload job outlives the request that began it, which makes asynchronous and resumable
//! uploads possible. One or several consecutive requests bring the bytes and then wait for a
//! certain state of the job. A transfer that receives nothing simply waits.

#![forbid(unsafe_code)]

mod access;
mod answer;
#[doc(hidden)] // for the fuzz targets
pub mod checksum;
pub mod cli;
mod config;
mod confine;
mod failure;
mod figures;
#[doc(hidden)] // for the fuzz targets
pub mod form;
mod generation;
mod intake;
mod job;
mod lifetime;
mod memory;
mod payload;
pub mod pod;
mod refusal;
mod reply;
mod representation;
mod request;
mod resumable;
mod routes;
mod server;
mod slot;
mod status;
#[doc(hidden)] // for the fuzz targets
pub mod tus;
mod watched;
mod write;

/// The name of the program, which begins each error line.
const PROGRAM: &str = "cdi-uploadserver";
