//! Two small executables that report facts about images. They are shipped with the importer in its
//! container image (contract, appendix B). Each has a module, and a `main` in `src/bin` that calls
//! it:
//!
//! * [`size_detection`]: `cdi-image-size-detection`, which reports the size of the disk on a
//!   volume;
//! * [`qemu_img`]: `qemu-img`, which supports only `info`.
//!
//! Both read only local files: no network code is linked into them.

#![forbid(unsafe_code)]

mod image;
pub mod qemu_img;
pub mod size_detection;
