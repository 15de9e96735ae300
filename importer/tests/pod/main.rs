//! The importer in a pod, as CDI's controllers use it: environment in; disk, message, metrics and
//! exit code out. Also Forklift's populators, and every program under limits of the system.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

mod archive;
mod blank;
mod bombs;
mod dashboard;
mod failure;
mod identity;
mod image_volume;
mod limits;
mod node_pull;
mod nutanix;
mod pod;
mod populators;
mod provenance;
mod read_only;
mod registry;
mod running;
mod sizes;
mod success;
mod trust;
mod vsphere;
mod warm;

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-importer");
