//! Decodes any bytes, in chunks of any size: decoding ends, in bounded memory and without a panic.

use std::num::NonZeroUsize;

use bytes::Bytes;
use datapath::Error;
use datapath::chunks::ChunkStream;
use datapath::decode::{self, DecodeLimits};
use datapath::memory::MemoryBudget;

/// Amount of output after which a stream counts as endless; a full target would stop it too.
const ENOUGH_BYTES: usize = 8 << 20;

/// Small, so that a window that passes the check unnoticed exceeds the fuzzer's memory limit.
const MEMORY_BYTES: u64 = 16 << 20;

struct Pieces {
    bytes: Bytes,
    size: usize,
}

impl ChunkStream for Pieces {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let size = self.size.min(self.bytes.len());
        Ok((size > 0).then(|| self.bytes.split_to(size)))
    }
}

pub fn run(data: &[u8]) {
    let Some((size, packed)) = data.split_first() else {
        return;
    };
    let source =
        Box::new(Pieces { bytes: Bytes::copy_from_slice(packed), size: usize::from(*size) + 1 });
    let limits = DecodeLimits {
        memory: MemoryBudget::new(MEMORY_BYTES),
        spare_bytes: 1 << 20,
        threads: NonZeroUsize::MIN.saturating_add(1),
    };
    if let Ok(decoded) = decode::open_layers(source, &limits) {
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
