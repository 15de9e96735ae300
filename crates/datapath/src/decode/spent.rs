//! Bytes that a stack of decoders may read for those that it gives.
//!
//! Empty members, padding, skippable frames and long names decode to nothing, and may go on for ever. So each layer may read
//! only a multiple of what has come out below all of them. A limit for each layer by itself would not do: the outer one can make
//! terabytes of padding for the inner one out of a few bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::chunks::Chunks;
use crate::codec::Codec;
use crate::error::{DecodeError, Error};
use crate::options::Limits;

/// Bytes of a layer for each byte that comes out below the stack. Compressed data is larger than its content only where it
/// cannot be compressed, by a thousandth; members of 10 bytes of content are three times as large.
const WORTH: u64 = 4;

/// True if `consumed` bytes may be read for `decoded` ones.
pub(super) fn is_worth(consumed: u64, decoded: u64, limits: &Limits) -> bool {
    consumed <= decoded.saturating_mul(WORTH).saturating_add(limits.spare_bytes)
}

/// The error of a layer that is not worth it.
pub(super) fn barren(codec: Codec, consumed: u64, decoded: u64) -> Error {
    DecodeError::Barren {
        codec: codec.name(),
        consumed,
        decoded,
    }
    .into()
}

/// The account of one stack.
pub(super) struct Spent {
    delivered: Arc<AtomicU64>,
    limits: Limits,
}

impl Spent {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            delivered: Arc::default(),
            limits: limits.clone(),
        }
    }

    /// The stream that the layer `codec` reads.
    pub(super) fn above(&self, codec: Codec, inner: Box<dyn Chunks>) -> Box<dyn Chunks> {
        Box::new(Above {
            codec,
            inner,
            consumed: 0,
            limits: self.limits.clone(),
            delivered: Arc::clone(&self.delivered),
        })
    }

    /// The stream that comes out of the stack.
    pub(super) fn below(self, inner: Box<dyn Chunks>) -> Box<dyn Chunks> {
        Box::new(Below {
            inner,
            delivered: self.delivered,
        })
    }
}

struct Above {
    codec: Codec,
    inner: Box<dyn Chunks>,
    consumed: u64,
    limits: Limits,
    delivered: Arc<AtomicU64>,
}

impl Chunks for Above {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let chunk = self.inner.next_chunk()?;
        self.consumed += chunk.as_ref().map_or(0, Bytes::len) as u64;
        let decoded = self.delivered.load(Ordering::Relaxed);
        if is_worth(self.consumed, decoded, &self.limits) {
            return Ok(chunk);
        }
        Err(barren(self.codec, self.consumed, decoded))
    }
}

struct Below {
    inner: Box<dyn Chunks>,
    delivered: Arc<AtomicU64>,
}

impl Below {
    fn count(&self, bytes: usize) {
        self.delivered.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Chunks for Below {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let chunk = self.inner.next_chunk()?;
        self.count(chunk.as_ref().map_or(0, Bytes::len));
        Ok(chunk)
    }

    fn next_placed(&mut self, received: u64) -> Result<Option<(u64, Bytes)>, Error> {
        let placed = self.inner.next_placed(received)?;
        self.count(placed.as_ref().map_or(0, |(_, bytes)| bytes.len()));
        Ok(placed)
    }
}
