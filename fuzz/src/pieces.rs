//! Input that arrives in chunks chosen by the fuzzer.

use bytes::Bytes;

/// Objects above this size get proportionally larger chunks, because millions of chunks would only
/// slow the fuzzer down.
const LARGE_BYTES: usize = 64 << 10;

/// The chunks of an object. Their sizes come from the first four bytes of the fuzzer's input,
/// which are used in turn: byte `n` stands for a chunk of `n²/4 + 1` bytes, 1 to 16 KiB. Objects
/// larger than 64 KiB get proportionally larger chunks.
#[derive(Clone)]
pub struct Pieces {
    sizes: [u8; Self::CUTS],
    scale: usize,
    next: usize,
    rest: Bytes,
}

impl Pieces {
    /// Number of bytes at the start of an input that determine the chunk sizes.
    pub const CUTS: usize = 4;

    /// Splits the fuzzer's input into chunk sizes and object. Returns `None` if it is too short.
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

    /// The bytes that have not been taken yet.
    pub fn rest(&self) -> &Bytes {
        &self.rest
    }

    /// Skips the next bytes.
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
