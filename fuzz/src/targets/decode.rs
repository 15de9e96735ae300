//! Decodes any bytes, in chunks of any size: decoding ends, in bounded memory and without a panic.

use std::num::NonZeroUsize;

use bytes::Bytes;
use codec::decode::{self, DecodeLimits};
use stream::Error;
use stream::chunks::ChunkStream;
use stream::memory::MemoryBudget;

use crate::Pieces;

/// Amount of output after which a stream counts as endless; a full target would stop it too.
const ENOUGH_BYTES: usize = 8 << 20;

/// Small, so that a window that passes the check unnoticed exceeds the fuzzer's memory limit.
const MEMORY_BYTES: u64 = 16 << 20;

impl ChunkStream for Pieces {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        Ok(self.next())
    }
}

pub fn run(data: &[u8]) {
    let Some(source) = Pieces::new(data) else { return };
    let limits = DecodeLimits {
        memory: MemoryBudget::new(MEMORY_BYTES),
        spare_bytes: 1 << 20,
        threads: NonZeroUsize::MIN.saturating_add(1),
    };
    if let Ok(decoded) = decode::open_layers(Box::new(source), &limits) {
        assert!(decoded.layers.len() <= decode::MAX_LAYERS);
        read(decoded.stream);
    }
}

fn read(mut stream: impl ChunkStream) {
    let mut bytes = 0;
    while bytes < ENOUGH_BYTES
        && let Ok(Some(chunk)) = stream.next_chunk()
    {
        assert!(!chunk.is_empty());
        bytes += chunk.len();
    }
}
