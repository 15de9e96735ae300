//! The small executables that stand beside the importer in its image (contract, appendix B). Each has a module, and a `main`
//! in `src/bin` that calls it:
//!
//! * [`size_detection`]: `cdi-image-size-detection`, how large the disk on a volume is;
//! * [`poller`]: `cdi-source-update-poller`, whether a registry has something new for a DataImportCron;
//! * [`qemu_img`]: `qemu-img`, of which there is `info` alone.
//!
//! `cdi-containerimage-server` is a crate of its own, because it may link next to nothing.

#![forbid(unsafe_code)]

mod image;
pub mod poller;
pub mod qemu_img;
pub mod size_detection;
