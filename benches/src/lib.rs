//! What the benches feed to the stages: data of three kinds, compressed by four codecs, as raw and as qcow2.
//! Everything is made here, from fixed seeds: a run needs no other program and gives the same bytes everywhere.

mod aligned;
mod codec;
mod kind;
mod memory;
mod qcow2;

pub use aligned::aligned;
pub use codec::Codec;
pub use kind::Kind;
pub use memory::Memory;
pub use qcow2::{CLUSTER_BYTES, Clusters, qcow2};
