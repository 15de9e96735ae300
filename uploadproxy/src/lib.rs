//! The upload proxy: one HTTPS listener in front of the upload servers of a cluster.
//!
//! ```text
//!  request ─► routes ─► token ─► limits ─► volumes ─► upstream ═► upload server of the PVC
//!  (hyper)              whose    how many  which pod,  TLS,        │
//!                       PVC      how fast  is it ready connections │
//!  reply ◄─ cors ◄─ forward ◄──────────────────────────────────────┘
//! ```
//!
//! `answer` takes each request from the listener to its upload server. `request_body` and
//! `reply_body` stream the bodies in the two directions. `lifetime` is the process: it listens
//! until a signal stops it. The pod configures it, and so does the development program
//! `uploadproxy-dev` (`uploadproxy/examples`), for which some types are public.
//!
//! The proxy only forwards bytes and does not interpret images, so neither `datapath` nor
//! `diskimage` is linked. Every upload has an `exchange`, which measures it and writes its log
//! line when both directions have ended.
//!
//! The destination of a request is a Service. Its name is built from the names in a verified
//! token, which are first checked once more by the rules of Kubernetes. The client's path, host
//! and headers do not influence it.

#![forbid(unsafe_code)]

mod answer;
mod api;
pub mod cli;
mod config;
mod cors;
mod exchange;
mod figures;
mod forward;
mod heads;
mod identity;
mod interim_limit;
pub mod lifetime;
mod limits;
mod memory;
mod names;
mod outcome;
mod pace;
mod page;
pub mod pod;
mod pool;
mod profile;
mod reply_body;
mod request_body;
mod routes;
mod token;
mod upstream;
mod volumes;

pub use config::Config;
pub use identity::{AuthorityBundle, ProxyIdentity};
pub use limits::UploadLimits;
pub use token::{KeyError, TokenVerifier, UploadGrant};
pub use volumes::{ClaimDirectory, UploadContent, UpstreamAddress, WaitingClaim};

/// The name of the program in the image.
const PROGRAM: &str = "cdi-uploadproxy";
