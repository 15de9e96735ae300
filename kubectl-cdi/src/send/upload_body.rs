//! The encoded bytes of an image, starting at the position in the stream that the server has
//! reached.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use codec::encode::outgoing::{self, EncodedStream, IncompleteStreamError, PassedPiece, PieceKind};
use codec::encode::{Encoding, VolumePiece};
use hyper::body::{Body, Frame};
use parking_lot::Mutex;
use stream::error::ThreadStartError;
use stream::local::read_exact_at;

use super::ledger::PieceLedger;
use super::watch::UploadWatch;
use crate::error::PluginError;
use crate::image::{ImageFile, KeptPrefix};

/// Statistics of a stream, and the error that ended it.
pub(crate) type Tally = outgoing::SendStats<PluginError>;

/// The body of an upload request.
pub(crate) struct UploadBody {
    /// Blocks of a piece of which an earlier stream has already sent a part.
    again: VecDeque<Bytes>,
    rest: EncodedStream<PluginError>,
    /// Number of bytes of the stream that the server already has. If they end within a piece, the
    /// beginning of the piece is encoded again, but not sent.
    has: u64,
    ledger: Arc<Mutex<PieceLedger>>,
    /// The generation of this stream in the ledger.
    turn: u64,
    watch: Arc<UploadWatch>,
}

impl UploadBody {
    /// Creates the stream of `image` after the first `has` bytes, which the server already has.
    /// Returns `None` if the ledger has no record of the piece at that position.
    pub(crate) fn resume_after(
        has: u64,
        image: &Arc<ImageFile>,
        encoding: Encoding,
        ledger: &Arc<Mutex<PieceLedger>>,
        watch: &Arc<UploadWatch>,
    ) -> Result<Option<(Self, Arc<Tally>)>, ThreadStartError> {
        let mut pieces = ledger.lock();
        let (kept, turn) = (pieces.kept_prefix(), pieces.take_turn());
        let (again, offset, stream_offset) = match pieces.return_to(has) {
            Some(passed) => {
                let Some(again) = encode_again(image, encoding, kept, passed) else {
                    return Ok(None);
                };
                let length: u64 = again.iter().map(|part| part.len() as u64).sum();
                pieces.note_piece(passed);
                (again, passed.offset + passed.length, passed.stream_offset + length)
            }
            None => (VecDeque::new(), 0, 0),
        };
        drop(pieces);
        // The server reports more bytes than were ever sent, or bytes of another upload.
        if stream_offset < has {
            return Ok(None);
        }
        let tally = Arc::default();
        let source = Arc::clone(image);
        let rest = EncodedStream::start(
            move |outlet| source.read_from(offset, kept, outlet),
            encoding,
            program::job::data_threads(),
            Arc::clone(&tally),
        )?;
        let (log, progress) = (Arc::clone(ledger), Arc::clone(watch));
        let note_piece = move |passed: PassedPiece| {
            let mut ledger = log.lock();
            if ledger.is_turn(turn) {
                progress.set_position(kept.in_image(passed.offset + passed.length));
                ledger.note_piece(passed);
            }
        };
        let stream = Self {
            again,
            rest: rest.with_log(stream_offset, offset, Box::new(note_piece)),
            has,
            turn,
            ledger: Arc::clone(ledger),
            watch: Arc::clone(watch),
        };
        Ok(Some((stream, tally)))
    }
}

/// Encodes a piece again, to the same bytes as before. Returns `None` if the image cannot be read.
fn encode_again(
    image: &ImageFile,
    encoding: Encoding,
    kept: KeptPrefix,
    passed: PassedPiece,
) -> Option<VecDeque<Bytes>> {
    let piece = match passed.kind {
        PieceKind::Zeros => VolumePiece::Zeros(passed.length),
        PieceKind::Stored | PieceKind::Squeezed => {
            let mut bytes = vec![0; usize::try_from(passed.length).ok()?];
            let offset = kept.in_image(passed.offset);
            read_exact_at(&image.file, &mut bytes, offset).ok()?;
            VolumePiece::Data(bytes.into())
        }
    };
    let is_squeezed = passed.kind == PieceKind::Squeezed;
    Some(encoding.new_encoder().encode_piece(piece, is_squeezed).into())
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = IncompleteStreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, IncompleteStreamError>>> {
        loop {
            let part = match self.again.pop_front() {
                Some(part) => part,
                None => match ready!(self.rest.poll_part(context)) {
                    Some(Ok(part)) => part,
                    Some(Err(broken)) => return Poll::Ready(Some(Err(broken))),
                    None => return Poll::Ready(None),
                },
            };
            match self.count_part(part) {
                Ok(part) if part.is_empty() => {}
                passed => return Poll::Ready(Some(passed.map(Frame::data))),
            }
        }
    }
}

impl UploadBody {
    /// Adds a part to the ledger and returns the bytes of the part that the server does not have,
    /// which may be none. Fails if a newer stream has begun.
    fn count_part(&self, mut part: Bytes) -> Result<Bytes, IncompleteStreamError> {
        let mut ledger = self.ledger.lock();
        if !ledger.is_turn(self.turn) {
            return Err(IncompleteStreamError);
        }
        let begin = ledger.stream_position();
        ledger.pass_bytes(&part);
        let known = self.has.saturating_sub(begin).min(part.len() as u64);
        let part = part.split_off(usize::try_from(known).unwrap_or(0));
        self.watch.add_stream_bytes(part.len() as u64);
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::file_identity::FileIdentity;

    /// Returns the next bytes of a stream; `None` at its end, or if a newer stream has replaced
    /// it.
    async fn next(stream: &mut UploadBody) -> Option<Bytes> {
        let frame = poll_fn(|context| Pin::new(&mut *stream).poll_frame(context)).await?;
        frame.ok()?.into_data().ok()
    }

    #[tokio::test]
    async fn a_replaced_stream_has_no_effect() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let content = testkit::disk::content(1, 4 << 20);
        std::fs::write(&path, &content).unwrap();
        let image = Arc::new(ImageFile::open(&path, false, None).unwrap());
        let ledger = Arc::new(Mutex::new(PieceLedger::new(None)));
        let identity: &FileIdentity = &image.identity;
        let location = format!("{}/1", program::cdi::RESUMABLE).try_into().unwrap();
        ledger.lock().begin_upload(identity, false, &location, KeptPrefix::default());
        let behind = |has| {
            UploadBody::resume_after(has, &image, Encoding::Plain, &ledger, &Arc::default())
                .unwrap()
                .unwrap()
                .0
        };
        let mut old = behind(0);
        let first = next(&mut old).await.unwrap();
        let mut new = behind(first.len() as u64 / 2);
        let mut sent = first[..first.len() / 2].to_vec();
        while let Some(bytes) = next(&mut new).await {
            sent.extend_from_slice(&bytes);
            assert_eq!(next(&mut old).await, None);
        }
        assert!(sent == content);
        let mut crc = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
        crc.update(&content);
        let ledger = ledger.lock();
        assert_eq!(ledger.stream_position(), content.len() as u64);
        assert_eq!(ledger.checksum_header(), format!("crc64nvme:{:016x}", crc.finalize()));
    }
}
