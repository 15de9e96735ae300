//! Disks of other hypervisors: NBD servers, VMware, and oVirt.

#![forbid(unsafe_code)]

#[doc(hidden)] // for the fuzz targets
pub mod blocks;
mod checkpoints;
pub mod imageio;
pub mod nbd;
#[doc(hidden)] // for the fuzz targets
pub mod nfc;
mod pin;
pub mod vddk;
#[doc(hidden)] // for the fuzz targets
pub mod xml;

pub use checkpoints::Checkpoints;
