//! Acts as kubelet: runs the images that `images/build.sh` built as the pods that CDI's
//! controllers make, and judges the results as the controllers do. There is no cluster, but the
//! containers are real: podman with runc, a network for each pod, limits on memory and CPU, a user
//! without capabilities, the default seccomp profile, and ext4 file systems and block devices as
//! volumes. Needs root.
//!
//! ```text
//!  controller   what CDI's controllers ask for: pods (contract §5)
//!  populators   those of the controller of Forklift's populators
//!  versions     how released versions of CDI make them
//!  pod          kubelet: init containers, containers, volumes, probes, ends
//!  volumes      claims (ext4 or block), secrets, config maps, empty folders
//!  network      a bridge, an address for each pod, ways to servers on this machine
//!  images       archives into podman
//!  scrape       metrics, as the controllers read them
//! ```

#![forbid(unsafe_code)]

pub mod controller;
pub mod images;
pub mod network;
pub mod pod;
mod podman;
pub mod populators;
pub mod scrape;
pub mod state;
pub mod versions;
pub mod volumes;

/// The port of the pods' metrics, and of everything on upload servers (contract §0.7, §5.4).
pub const PORT: u16 = 8443;
