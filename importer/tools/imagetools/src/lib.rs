//! Two small executables that tell about images, which stand beside the importer in its image (contract, appendix B). Each has a
//! module, and a `main` in `src/bin` that calls it:
//!
//! * [`size_detection`]: `cdi-image-size-detection`, how large the disk on a volume is;
//! * [`qemu_img`]: `qemu-img`, of which there is `info` alone.
//!
//! Both read local files only: nothing that speaks to a network is linked into them.

#![forbid(unsafe_code)]

mod image;
pub mod qemu_img;
pub mod size_detection;
