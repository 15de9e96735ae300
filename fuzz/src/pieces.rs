//! Input that arrives as the fuzzer cuts it.

use bytes::Bytes;

/// Chunks of larger objects are larger, in proportion: millions of them would only make the fuzzer slow.
const LARGE_BYTES: usize = 64 << 10;

/// The chunks of an object. Their sizes come from the first four bytes of the fuzzer's input, over and over again:
/// size byte `n` is a chunk of `n²/4 + 1` bytes, 1 to 16 KiB,
/// and as much more as the object is larger than 64 KiB.
#[derive(Clone)]
pub struct Pieces {
    sizes: [u8; Self::CUTS],
    scale: usize,
    next: usize,
    rest: Bytes,
}

impl Pieces {
    /// Bytes at the front of an input that say how the rest is cut.
    pub const CUTS: usize = 4;

    /// Splits the fuzzer's input into how to cut and what; `None` if it is too short for that.
    pub fn new(input: &[u8]) -> Option<Self> {
        let (sizes, object) = input.split_first_chunk::<{ Self::CUTS }>()?;
        Some(Self::of(*sizes, object.to_vec()))
    }

    /// The object in chunks of these sizes.
    pub fn of(sizes: [u8; Self::CUTS], object: Vec<u8>) -> Self {
        Self { sizes, scale: 1 + object.len() / LARGE_BYTES, next: 0, rest: object.into() }
    }

    /// The same bytes in the largest chunks.
    pub fn in_large(&self) -> Self {
        Self { sizes: [u8::MAX; Self::CUTS], ..self.clone() }
    }

    /// What has not been taken yet.
    pub fn rest(&self) -> &Bytes {
        &self.rest
    }

    /// Leaves the next bytes out.
    pub fn advance(&mut self, bytes: usize) {
        self.rest = self.rest.slice(bytes.min(self.rest.len())..);
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let size = usize::from(self.sizes[self.next % Self::CUTS]).pow(2) / 4 + 1;
        self.next += 1;
        let size = (size * self.scale).min(self.rest.len());
        (size > 0).then(|| self.rest.split_to(size))
    }
}
