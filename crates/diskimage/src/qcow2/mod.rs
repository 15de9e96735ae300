//! qcow2, versions 2 and 3 (QEMU `docs/interop/qcow2.rst`).
//!
//! Unusual images are read as QEMU reads them:
//!
//! * The dirty bit and the corrupt bit mean that the refcounts cannot be trusted. They are then
//!   ignored, and a cluster is released before all tables are known only if a table claims the
//!   sole reference to it (bit 63 of the entry).
//! * The virtual size is rounded down to sectors.
//! * A deflate cluster is complete when it is full, whether or not its stream has an end marker.

mod check;
mod extensions;
mod header;
mod layout;
mod map;
mod refcounts;
mod table;
mod writer;
mod zeros;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use header::{BackingFile, Qcow2Header};
pub use writer::{
    ImageSink, IncompleteImage, Qcow2Compression, Qcow2Writer, WRITTEN_CLUSTER_BYTES,
};

use self::layout::Qcow2Layout;
use crate::Error;
use crate::layout::ImageLayout;

/// Reads the head of an image without a backing file.
pub(crate) fn open(head: &[u8]) -> Result<Box<dyn ImageLayout>, Error> {
    Ok(Box::new(Qcow2Layout::new(Qcow2Header::parse(head)?)))
}

/// Reads the head of a delta, an image that stores only the differences to a base image. Also
/// returns what the header says about the base, if it names one.
pub(crate) fn open_delta(
    head: &[u8],
) -> Result<(Box<dyn ImageLayout>, Option<BackingFile>), Error> {
    let (header, base) = Qcow2Header::parse_delta(head)?;
    Ok((Box::new(Qcow2Layout::new(header)), base))
}
