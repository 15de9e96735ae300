//! qcow2, versions 2 and 3 (QEMU `docs/interop/qcow2.rst`).
//!
//! Odd images are read as QEMU reads them. The dirty and the corrupt bit mean that refcounts are not to be trusted: they are then ignored,
//! and only what a table calls its own (bit 63 of its entry) is let go before all tables are known. A virtual size is rounded down to
//! sectors. A deflate cluster is complete when it is full, whether or not its stream says that it ends there.

mod check;
mod extensions;
mod header;
mod layout;
mod map;
mod refcounts;
mod table;
mod zeros;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use header::Qcow2Header;

use self::layout::Qcow2Layout;
use crate::Error;
use crate::layout::ImageLayout;

/// Reads the head of an image that stands alone.
pub(crate) fn open(head: &[u8]) -> Result<Box<dyn ImageLayout>, Error> {
    Ok(Box::new(Qcow2Layout::new(Qcow2Header::parse(head)?)))
}

/// Reads the head of an image that is the difference to another, and the name that it gives that one.
pub(crate) fn open_delta(head: &[u8]) -> Result<(Box<dyn ImageLayout>, String), Error> {
    let (header, base) = Qcow2Header::parse_delta(head)?;
    Ok((Box::new(Qcow2Layout::new(header)), base))
}
