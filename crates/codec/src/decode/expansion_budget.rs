//! Limits how many bytes a stack of decoders may read for the bytes that it produces.
//!
//! Empty members, padding, skippable frames and long names decode to nothing, and a stream of them
//! may be endless. Each layer may therefore read only a multiple of the output of the whole stack.
//! A limit for each layer alone would not suffice: from a few bytes, the outer layer can produce
//! terabytes of padding for the inner one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use stream::chunks::ChunkStream;
use stream::codec::Codec;
use stream::error::{DecodeError, Error};
use stream::options::DecodeLimits;

/// Bytes that a layer may read for each byte of output of the stack. Compressed data is larger
/// than its content only if it is incompressible, and then by a thousandth. Members with 10 bytes
/// of content each are three times as large as their content.
const WORTH: u64 = 4;

/// Returns true if reading `consumed` bytes is acceptable for `decoded` bytes of output.
pub(super) fn is_worth(consumed: u64, decoded: u64, limits: &DecodeLimits) -> bool {
    consumed <= decoded.saturating_mul(WORTH).saturating_add(limits.spare_bytes)
}

/// Returns the error for a layer that reads too much for its output.
pub(super) fn barren_error(codec: Codec, consumed: u64, decoded: u64) -> Error {
    DecodeError::Barren { codec: codec.name(), consumed, decoded }.into()
}

/// The bytes that one stack has delivered, shared by the inputs of all of its layers.
pub(super) struct ExpansionBudget {
    delivered: Arc<AtomicU64>,
    limits: DecodeLimits,
}

impl ExpansionBudget {
    pub(super) fn new(limits: &DecodeLimits) -> Self {
        Self { delivered: Arc::default(), limits: limits.clone() }
    }

    /// Wraps the input of the layer `codec`, which then fails once it has read too much.
    pub(super) fn wrap_input(
        &self,
        codec: Codec,
        inner: Box<dyn ChunkStream>,
    ) -> Box<dyn ChunkStream> {
        Box::new(BudgetedInput {
            codec,
            inner,
            consumed: 0,
            limits: self.limits.clone(),
            delivered: Arc::clone(&self.delivered),
        })
    }

    /// Wraps the output of the stack and counts its bytes.
    pub(super) fn wrap_output(self, inner: Box<dyn ChunkStream>) -> Box<dyn ChunkStream> {
        Box::new(CountedOutput { inner, delivered: self.delivered })
    }
}

/// The input of a layer. It fails once the layer has read too much for the stack's output.
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

/// The output of a stack, which counts the bytes that were delivered.
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
