//! The bytes that are sent of an image, from the place in the stream at which the server is.

use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use datapath::encode::outgoing::{self, Broken, Kind, Outgoing, Passed};
use datapath::encode::{Encoding, Piece};
use datapath::error::NoThread;
use hyper::body::{Body, Frame};
use parking_lot::Mutex;

use super::ledger::Ledger;
use super::watch::Watch;
use crate::image::{Image, Kept, NoImage};

/// What is known of a stream.
pub(crate) type Tally = outgoing::Tally<NoImage>;

/// The body of a request.
pub(crate) struct Stream {
    /// Parts of a piece that was sent in part before.
    again: VecDeque<Bytes>,
    rest: Outgoing<NoImage>,
    /// Bytes of the stream that the server has.
    has: u64,
    ledger: Arc<Mutex<Ledger>>,
    /// Its turn with the ledger.
    turn: u64,
    watch: Arc<Watch>,
}

impl Stream {
    /// The stream of `image` behind the `has` bytes that the server has; `None` if its place there is not known any more.
    pub(crate) fn behind(
        has: u64,
        image: &Arc<Image>,
        encoding: Encoding,
        ledger: &Arc<Mutex<Ledger>>,
        watch: &Arc<Watch>,
    ) -> Result<Option<(Self, Arc<Tally>)>, NoThread> {
        let mut pieces = ledger.lock();
        let (kept, turn) = (pieces.kept(), pieces.take_turn());
        let (again, offset, stream_offset) = match pieces.return_to(has) {
            Some(passed) => {
                let Some(again) = encode_again(image, encoding, kept, passed) else {
                    return Ok(None);
                };
                let length: u64 = again.iter().map(|part| part.len() as u64).sum();
                pieces.note(passed);
                (
                    again,
                    passed.offset + passed.length,
                    passed.stream_offset + length,
                )
            }
            None => (VecDeque::new(), 0, 0),
        };
        drop(pieces);
        // More than was ever sent, or of another upload.
        if stream_offset < has {
            return Ok(None);
        }
        let tally = Arc::default();
        let stream = Self {
            again,
            rest: outgoing(
                image,
                encoding,
                kept,
                (stream_offset, offset),
                (ledger, turn),
                watch,
                &tally,
            )?,
            has,
            turn,
            ledger: Arc::clone(ledger),
            watch: Arc::clone(watch),
        };
        Ok(Some((stream, tally)))
    }
}

/// The bytes of a piece, as they were made of it before.
fn encode_again(image: &Image, encoding: Encoding, kept: Kept, passed: Passed) -> Option<VecDeque<Bytes>> {
    let piece = match passed.kind {
        Kind::Zeros => Piece::Zeros(passed.length),
        Kind::Stored | Kind::Squeezed => {
            let mut bytes = vec![0; usize::try_from(passed.length).ok()?];
            let offset = kept.in_image(passed.offset);
            image.file.read_exact_at(&mut bytes, offset).ok()?;
            Piece::Data(bytes.into())
        }
    };
    let blocks = encoding.encoder().encode(piece, passed.kind == Kind::Squeezed);
    Some(
        blocks
            .into_iter()
            .flat_map(|block| [block.head, block.body])
            .collect(),
    )
}

/// What follows: the image, less what is kept, from `offset` on, in the stream from `stream_offset` on.
fn outgoing(
    image: &Arc<Image>,
    encoding: Encoding,
    kept: Kept,
    (stream_offset, offset): (u64, u64),
    (ledger, turn): (&Arc<Mutex<Ledger>>, u64),
    watch: &Arc<Watch>,
    tally: &Arc<Tally>,
) -> Result<Outgoing<NoImage>, NoThread> {
    let source = Arc::clone(image);
    let (log, place) = (Arc::clone(ledger), Arc::clone(watch));
    let outgoing = Outgoing::start(
        move |outlet| source.read(offset, kept, outlet),
        encoding,
        program::job::data_threads(),
        Arc::clone(tally),
    )?;
    Ok(outgoing.logged(
        stream_offset,
        offset,
        Box::new(move |passed| {
            let mut ledger = log.lock();
            if ledger.is_turn(turn) {
                place.at(kept.in_image(passed.offset + passed.length));
                ledger.note(passed);
            }
        }),
    ))
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            let part = match self.again.pop_front() {
                Some(part) => part,
                None => match ready!(self.rest.poll_part(context)) {
                    Some(Ok(part)) => part,
                    Some(Err(broken)) => return Poll::Ready(Some(Err(broken))),
                    None => return Poll::Ready(None),
                },
            };
            match self.pass(part) {
                Ok(part) if part.is_empty() => {}
                passed => return Poll::Ready(Some(passed.map(Frame::data))),
            }
        }
    }
}

impl Stream {
    /// Counts a part; what of it the server has not, maybe nothing. Fails if another stream has the turn.
    fn pass(&self, mut part: Bytes) -> Result<Bytes, Broken> {
        let mut ledger = self.ledger.lock();
        if !ledger.is_turn(self.turn) {
            return Err(Broken);
        }
        let begin = ledger.position();
        ledger.pass(&part);
        let known = self.has.saturating_sub(begin).min(part.len() as u64);
        let part = part.split_off(usize::try_from(known).unwrap_or(0));
        self.watch.sent(part.len() as u64);
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::image::Identity;

    /// The next bytes of a stream; `None` at its end, and where it may not go on.
    async fn next(stream: &mut Stream) -> Option<Bytes> {
        let frame = poll_fn(|context| Pin::new(&mut *stream).poll_frame(context)).await?;
        frame.ok()?.into_data().ok()
    }

    #[tokio::test]
    async fn a_stream_that_was_replaced_changes_nothing_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let content = testkit::disk::content(1, 4 << 20);
        std::fs::write(&path, &content).unwrap();
        let image = Arc::new(Image::open(&path, false).unwrap());
        let ledger = Arc::new(Mutex::new(Ledger::new(None)));
        let identity: &Identity = &image.identity;
        let location = format!("{}/1", program::cdi::RESUMABLE).try_into().unwrap();
        ledger.lock().begin(identity, false, &location, Kept::default());
        let behind = |has| {
            Stream::behind(has, &image, Encoding::Plain, &ledger, &Arc::default())
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
        assert_eq!(ledger.position(), content.len() as u64);
        assert_eq!(ledger.checksum(), format!("crc64nvme:{:016x}", crc.finalize()));
    }
}
