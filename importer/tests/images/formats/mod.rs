//! Every image format by every route: the disk is the one that `qemu-img convert -O raw` makes.

pub(crate) mod check;
mod hybrids;
mod info;
mod matrix;
mod names;
mod qcow2;
mod vdi;
mod vhd;
mod vhdx;
mod vmdk;
