//! `kubectl-cdi`: a kubectl plugin that copies disk images from the user's machine into volumes of
//! a cluster with CDI and back, and starts imports of remote images.
//!
//! ```text
//!  cli ─► image     the local file: its format, and the size of its disk
//!      ├► remote    the size of the disk in an image at a URL
//!      ├► evidence  who published an image (also keyless): its checksum or digest
//!      ├► cluster   DataVolumes, claims, tokens, and what CDI is waiting for
//!      ├► send      the upload: resumable, without zeros, compressed if the network is slow
//!      └► receive   the download, in the same way
//! ```

#![forbid(unsafe_code)]

mod cli;
pub mod cluster;
mod content_check;
mod error;
mod evidence;
mod file_identity;
mod image;
mod keyless;
mod receive;
mod remote;
mod send;

pub use cli::main;
pub use error::PluginError;
