//! Every image format, by every route: exactly what `qemu-img convert -O raw` makes of the same image.

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
