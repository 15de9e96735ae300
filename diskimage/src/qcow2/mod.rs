//! qcow2, versions 2 and 3 (QEMU `docs/interop/qcow2.rst`).
//!
//! [`Stream`] takes the image's bytes in file order and emits the guest's. It is used in two ways:
//!
//! * **ranged**: [`MapBuilder`] is given the L1 and L2 tables first; then every byte's place is known before it comes,
//!   and what nothing maps need not be fetched;
//! * **one pass**: the tables are used as they pass. A cluster that nothing maps yet is handed to [`Sink::park`]
//!   until its mapping arrives, its refcount is satisfied, or all L2 tables are known.

mod builder;
mod header;
mod map;
mod pieces;
mod refcounts;
mod stream;
mod table;
mod wants;
mod zeros;

#[cfg(test)]
pub(crate) mod testing;

pub use builder::MapBuilder;
pub use header::{Compression, HEADER_BYTES, Header};
pub use stream::{Sink, Stream};
pub use table::L2Table;
pub use zeros::Zeros;

/// Memory that the map of one image may take: a plain image needs 24 bytes a run of adjacent clusters, a
/// compressed one 24 bytes a cluster (40 MiB for 100 GiB of data in 64 KiB clusters).
pub const MAP_BYTES: u64 = 256 << 20;

#[cfg(test)]
mod tests;
