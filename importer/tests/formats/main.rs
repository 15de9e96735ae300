//! Every image format, by every route: exactly what `qemu-img convert -O raw` makes of the same image.

mod check;
mod matrix;
mod vdi;
mod vmdk;
