//! Every image format by every route: the disk is the one that `qemu-img convert -O raw` makes.

mod by_hand;
pub(crate) mod check;
mod hybrids;
mod info;
mod matrix;
mod names;
