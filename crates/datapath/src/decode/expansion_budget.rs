//! Bytes that a stack of decoders may read for those that it gives.
//!
//! Empty members, padding, skippable frames and long names decode to nothing, and may go on for ever. So each layer may read
//! only a multiple of what has come out below all of them. A limit for each layer by itself would not do: the outer one can make
//! terabytes of padding for the inner one out of a few bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::chunks::ChunkStream;
use crate::codec::Codec;
use crate::error::{DecodeError, Error};
use crate::options::DecodeLimits;

/// Bytes of a layer for each byte that comes out below the stack. Compressed data is larger than its content only where it
/// cannot be compressed, by a thousandth; members of 10 bytes of content are three times as large.
const WORTH: u64 = 4;

/// True if `consumed` bytes may be read for `decoded` ones.
pub(super) fn is_worth(consumed: u64, decoded: u64, limits: &DecodeLimits) -> bool {
    consumed <= decoded.saturating_mul(WORTH).saturating_add(limits.spare_bytes)
}

/// The error of a layer that is not worth it.
pub(super) fn barren_error(codec: Codec, consumed: u64, decoded: u64) -> Error {
    DecodeError::Barren { codec: codec.name(), consumed, decoded }.into()
}

/// The account of one stack.
pub(super) struct ExpansionBudget {
    delivered: Arc<AtomicU64>,
    limits: DecodeLimits,
}

impl ExpansionBudget {
    pub(super) fn new(limits: &DecodeLimits) -> Self {
        Self { delivered: Arc::default(), limits: limits.clone() }
    }

    /// The stream that the layer `codec` reads.
    pub(super) fn wrap_input(&self, codec: Codec, inner: Box<dyn ChunkStream>) -> Box<dyn ChunkStream> {
        Box::new(BudgetedInput {
            codec,
            inner,
            consumed: 0,
            limits: self.limits.clone(),
            delivered: Arc::clone(&self.delivered),
        })
    }

    /// The stream that comes out of the stack.
    pub(super) fn wrap_output(self, inner: Box<dyn ChunkStream>) -> Box<dyn ChunkStream> {
        Box::new(CountedOutput { inner, delivered: self.delivered })
    }
}

struct BudgetedInput {
    codec: Codec,
    inner: Box<dyn ChunkStream>,
    consumed: u64,
    limits: DecodeLimits,
    delivered: Arc<AtomicU64>,
}

impl ChunkStream for BudgetedInput {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let chunk = self.inner.next_chunk()?;
        self.consumed += chunk.as_ref().map_or(0, Bytes::len) as u64;
        let decoded = self.delivered.load(Ordering::Relaxed);
        if is_worth(self.consumed, decoded, &self.limits) {
            return Ok(chunk);
        }
        Err(barren_error(self.codec, self.consumed, decoded))
    }
}

struct CountedOutput {
    inner: Box<dyn ChunkStream>,
    delivered: Arc<AtomicU64>,
}

impl CountedOutput {
    fn count_bytes(&self, bytes: usize) {
        self.delivered.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl ChunkStream for CountedOutput {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let chunk = self.inner.next_chunk()?;
        self.count_bytes(chunk.as_ref().map_or(0, Bytes::len));
        Ok(chunk)
    }

    fn next_placed(&mut self, received: u64) -> Result<Option<(u64, Bytes)>, Error> {
        let placed = self.inner.next_placed(received)?;
        self.count_bytes(placed.as_ref().map_or(0, |(_, bytes)| bytes.len()));
        Ok(placed)
    }
}
