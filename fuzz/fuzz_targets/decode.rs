//! Any bytes, in chunks of any size, through the decode stack: it ends, in bounded memory, without a panic.

#![no_main]

use std::num::NonZeroUsize;

use bytes::Bytes;
use datapath::Error;
use datapath::chunks::Chunks;
use datapath::decode::{self, Limits};
use libfuzzer_sys::fuzz_target;

/// Output after which a stream counts as endless, as a full target would end it.
const ENOUGH_BYTES: usize = 8 << 20;

/// Small, so that a window that gets past the check shows in the fuzzer's memory limit.
const LIMITS: Limits = Limits {
    window_bytes: 8 << 20,
    threads: NonZeroUsize::MIN.saturating_add(1),
};

struct Pieces {
    bytes: Bytes,
    size: usize,
}

impl Chunks for Pieces {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let size = self.size.min(self.bytes.len());
        Ok((size > 0).then(|| self.bytes.split_to(size)))
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((size, packed)) = data.split_first() else {
        return;
    };
    let source = Pieces {
        bytes: Bytes::copy_from_slice(packed),
        size: usize::from(*size) + 1,
    };
    let Ok(mut decoded) = decode::open(Box::new(source), &LIMITS) else {
        return;
    };
    assert!(decoded.layers.len() <= decode::MAX_LAYERS);
    let mut read = 0;
    while read < ENOUGH_BYTES
        && let Ok(Some(chunk)) = decoded.stream.next_chunk()
    {
        assert!(!chunk.is_empty());
        read += chunk.len();
    }
});
