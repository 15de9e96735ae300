//! Decodes the beginning of a blob on the side, and then returns the blob unchanged.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use fetch::error::invalid_error;
use parking_lot::Mutex;
use stream::chunks::ChunkStream;
use stream::error::{Error, SourceError};
use stream::source::SourceBody;

use super::messages::pull_error;

/// Bytes of a blob that decoders may read before they return a first block. The largest block of
/// bzip2 has 900 kB, the largest of the other codecs 128 KiB.
const MAX_RECORDED_BYTES: usize = 2 << 20;

/// The bytes of a blob for decoders. They are recorded until the caller has decided whether it
/// needs the decoded bytes or the blob itself.
pub(super) struct BlobTap(Arc<Mutex<TapState>>);

/// The other end of a [`BlobTap`], with the bytes of the blob from its beginning.
pub(super) struct RecordedBlob(Arc<Mutex<TapState>>);

struct TapState {
    body: Box<dyn SourceBody>,
    recorded: VecDeque<Bytes>,
    recorded_bytes: usize,
    is_recording: bool,
}

/// Returns both ends of a tap on `body`. Once [`RecordedBlob`] is read, [`BlobTap`] must not be.
pub(super) fn tap_blob(body: Box<dyn SourceBody>) -> (BlobTap, RecordedBlob) {
    let state = TapState { body, recorded: VecDeque::new(), recorded_bytes: 0, is_recording: true };
    let state = Arc::new(Mutex::new(state));
    (BlobTap(Arc::clone(&state)), RecordedBlob(state))
}

impl RecordedBlob {
    /// Ends the recording, because the caller needs the decoded bytes and not the blob.
    pub(super) fn forget(self) {
        let mut state = self.0.lock();
        state.is_recording = false;
        state.recorded.clear();
    }
}

impl ChunkStream for BlobTap {
    /// Fails if too many bytes were recorded. An early end would look like a damaged layer, which
    /// is taken for a disk because its content is decoded again.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let mut state = self.0.lock();
        if state.recorded_bytes >= MAX_RECORDED_BYTES && state.is_recording {
            let message = format!(
                "the first {MAX_RECORDED_BYTES} bytes of the layer decode to too little to see what it is; compress it in one piece"
            );
            return Err(pull_error(invalid_error(message)).into());
        }
        let chunk = state.body.next_chunk().map_err(pull_error)?;
        if let Some(bytes) = chunk.as_ref().filter(|_| state.is_recording) {
            state.recorded_bytes += bytes.len();
            state.recorded.push_back(bytes.clone());
        }
        Ok(chunk)
    }
}

impl SourceBody for RecordedBlob {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let mut state = self.0.lock();
        match state.recorded.pop_front() {
            Some(bytes) => Ok(Some(bytes)),
            None => state.body.next_chunk(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body of this number of chunks.
    struct CountedBody(usize);

    impl SourceBody for CountedBody {
        fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
            let chunk = self
                .0
                .checked_sub(1)
                .map(|left| Bytes::from(vec![left.to_le_bytes()[0]; 64 << 10]));
            self.0 = self.0.saturating_sub(1);
            Ok(chunk)
        }
    }

    fn read_all(mut next: impl FnMut() -> Option<Bytes>) -> Vec<u8> {
        std::iter::from_fn(|| next().map(|bytes| bytes[0])).collect()
    }

    #[test]
    fn a_blob_is_whole_after_any_part_was_decoded() {
        for decoded in [0, 1, 5, 100] {
            let (mut tap, mut blob) = tap_blob(Box::new(CountedBody(50)));
            for _ in 0..decoded {
                tap.next_chunk().ok();
            }
            let expected: Vec<u8> = (0..50).rev().collect();
            assert_eq!(read_all(|| blob.next_chunk().unwrap()), expected);
        }
    }

    #[test]
    fn a_decoder_gets_only_so_much_until_the_blob_is_forgotten() {
        let (mut tap, _blob) = tap_blob(Box::new(CountedBody(50)));
        assert_eq!(read_all(|| tap.next_chunk().ok().flatten()).len(), MAX_RECORDED_BYTES >> 16);
        let error = tap.next_chunk().unwrap_err().to_string();
        assert!(error.contains("the first 2097152 bytes of the layer"), "{error}");
        let (mut tap, blob) = tap_blob(Box::new(CountedBody(50)));
        tap.next_chunk().unwrap();
        blob.forget();
        assert_eq!(read_all(|| tap.next_chunk().unwrap()).len(), 49);
    }
}
