//! The pod face, as CDI's controllers see it: environment in; disk, termination message, metrics and exit code out.

mod archive;
mod blank;
mod bombs;
mod dashboard;
mod failure;
mod identity;
mod node_pull;
mod pod;
mod registry;
mod running;
mod sizes;
mod success;
mod vddk;
mod vsphere;
mod warm;
