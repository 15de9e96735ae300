//! The inputs of the benchmarks: data of three kinds, compressed by four codecs, as raw disks and
//! as qcow2 images. Everything is generated from fixed seeds, so that a run needs no other program
//! and uses the same bytes everywhere.

mod aligned;
mod codec;
mod kind;
#[path = "../../crates/datapath/tests/common/memory.rs"]
mod memory;
mod qcow2;

pub use aligned::aligned;
pub use codec::Codec;
pub use kind::Kind;
pub use memory::Memory;
pub use qcow2::{CLUSTER_BYTES, Clusters, qcow2};
use stream::buffer::CHUNK_BYTES;

/// Returns an object that is read in aligned chunks, like those of the importer's sources.
pub fn memory(bytes: &[u8], ranged: bool) -> Memory {
    Memory { chunks: vec![CHUNK_BYTES], ranged, ..Memory::new(aligned(bytes)) }
}
