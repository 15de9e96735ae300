//! The source stage of an upload. It passes bytes that arrive in asynchronous tasks to the thread
//! of the data path.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use stream::bridge::{self, BridgeClosedError, CopyingSender};
use stream::digest::{Checksum, RunningDigest};
use stream::error::{SourceError, SourceErrorKind};
use stream::source::{Source, SourceBody};
use tokio_util::sync::CancellationToken;

use crate::checksum::AnnouncedChecksum;

/// Bytes that may be buffered between the socket and the data path.
const BRIDGE_BYTES: usize = 4 << 20;

/// The end of the bytes: either all of them arrived (with the checksum from a trailer, if there
/// was one), or some are missing.
type End = Result<Option<Checksum>, SourceError>;

/// The asynchronous side, which receives the bytes. Dropping it before an end was set makes the
/// upload fail.
pub(crate) struct UploadIntake {
    sender: CopyingSender,
    end: Arc<Mutex<Option<End>>>,
    received: Arc<AtomicU64>,
    /// The length of the upload. It may become known after the first bytes have arrived.
    total: Arc<OnceLock<u64>>,
}

/// The blocking side, which the data path reads.
pub(crate) struct ReceivedSource {
    total: Option<u64>,
    body: Mutex<Option<ReceivedBody>>,
}

/// Creates both sides of an upload of `total` bytes, if the length is known. `received` counts the
/// bytes as they arrive.
pub(crate) fn channel(
    total: &Arc<OnceLock<u64>>,
    promise: &AnnouncedChecksum,
    received: Arc<AtomicU64>,
    stop: CancellationToken,
) -> (UploadIntake, ReceivedSource) {
    let (sender, chunks) = bridge::channel(BRIDGE_BYTES, &stop);
    let end = Arc::new(Mutex::new(None));
    let digests = match promise {
        // A trailer names its algorithm only after all bytes have passed, so the digests of all
        // possible algorithms are computed.
        AnnouncedChecksum::Later(algorithms) => algorithms
            .iter()
            .map(|algorithm| (*algorithm, RunningDigest::new(*algorithm)))
            .collect(),
        AnnouncedChecksum::None | AnnouncedChecksum::Known(_) => Vec::new(),
    };
    let body = ReceivedBody { chunks, end: Arc::clone(&end), digests, stop };
    let intake = UploadIntake {
        sender: CopyingSender::new(sender, 0),
        end,
        received,
        total: Arc::clone(total),
    };
    let source = ReceivedSource { total: total.get().copied(), body: Mutex::new(Some(body)) };
    (intake, source)
}

impl UploadIntake {
    /// Passes on the next bytes, and waits while the disk is slower than the client. If the future
    /// is dropped, bytes are lost.
    pub(crate) async fn push_bytes(&mut self, bytes: &[u8]) -> Result<(), BridgeClosedError> {
        self.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.sender.push(bytes).await
    }

    /// Returns the output of `next` if it is ready soon. Otherwise flushes the bytes received so
    /// far and returns `None`; the caller still has to await `next`.
    pub(crate) async fn next_soon<F: Future>(
        &mut self,
        next: Pin<&mut F>,
    ) -> Result<Option<F::Output>, BridgeClosedError> {
        self.sender.await_or_flush(next).await
    }

    /// Passes on the bytes received so far, because it may take long until the next ones arrive.
    pub(crate) async fn flush_bytes(&mut self) {
        // If the data path has ended, its own error is more specific than this one.
        self.sender.flush().await.ok();
    }

    /// Completes when no more bytes are needed because the upload has failed or was stopped.
    pub(crate) async fn wait_closed(&self) {
        self.sender.closed().await;
    }

    /// Returns an error if `more` bytes would exceed the length that the client announced.
    pub(crate) fn check_room(&self, more: usize) -> Result<(), SourceError> {
        let end = self.received_bytes().saturating_add(more as u64);
        match self.total_bytes() {
            Some(total) if end > total => Err(SourceError::new(
                SourceErrorKind::Invalid,
                format!("more bytes than announced: {end} of {total}"),
            )),
            _ => Ok(()),
        }
    }

    /// Returns the number of bytes received so far.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that the client announced.
    fn total_bytes(&self) -> Option<u64> {
        self.total.get().copied()
    }

    /// Returns true if all bytes that the client announced have arrived.
    pub(crate) fn has_all_bytes(&self) -> bool {
        self.total_bytes() == Some(self.received_bytes())
    }

    /// Ends the upload after its last byte. `checksum` is the checksum that was sent after the
    /// bytes.
    pub(crate) async fn finish_body(mut self, checksum: Option<Checksum>) {
        let received = self.received_bytes();
        let end = match self.total_bytes() {
            Some(total) if total != received => Err(SourceError::new(
                SourceErrorKind::Length,
                format!("unexpected EOF: {received} of {total} bytes were received"),
            )),
            _ => Ok(checksum),
        };
        self.flush_bytes().await;
        // The end is set before the sender is dropped, because the data path looks for it as soon
        // as the bridge is closed.
        self.set_end(end);
    }

    /// Ends the upload with `error` because some bytes are missing.
    pub(crate) async fn break_off(mut self, error: SourceError) {
        let error = match (error.kind(), self.total_bytes()) {
            (SourceErrorKind::Length, Some(total)) => SourceError::new(
                SourceErrorKind::Length,
                format!(
                    "{error}: the client went away after {} of {total} bytes",
                    self.received_bytes()
                ),
            ),
            _ => error,
        };
        // The bytes received so far are valid, so they are passed on. The data path then reports
        // how far it got.
        self.flush_bytes().await;
        self.set_end(Err(error));
    }

    fn set_end(&self, end: End) {
        *self.end.lock() = Some(end);
    }
}

impl Source for ReceivedSource {
    fn name(&self) -> String {
        "upload".to_owned()
    }

    fn total_bytes(&self) -> Option<u64> {
        self.total
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        match self.body.lock().take() {
            Some(body) => Ok(Box::new(body)),
            None => {
                let message = "an upload can be read once, from its beginning";
                Err(SourceError::new(SourceErrorKind::Invalid, message))
            }
        }
    }
}

struct ReceivedBody {
    chunks: bridge::BridgeReceiver,
    end: Arc<Mutex<Option<End>>>,
    /// Running digests of all bytes so far, one for each algorithm that the trailer may name.
    digests: Vec<(stream::digest::DigestAlgorithm, RunningDigest)>,
    stop: CancellationToken,
}

impl SourceBody for ReceivedBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        if let Some(chunk) = self.chunks.recv() {
            for (_, digest) in &mut self.digests {
                digest.update(&chunk);
            }
            return Ok(Some(chunk));
        }
        if self.stop.is_cancelled() {
            return Err(SourceError::new(SourceErrorKind::Stopped, "stopped while receiving"));
        }
        let end = self.end.lock().take();
        match end {
            Some(Ok(checksum)) => self.verify_checksum(checksum.as_ref()).map(|()| None),
            Some(Err(error)) => Err(error),
            // The task that received the body was dropped together with its connection, before the
            // body ended.
            None => Err(SourceError::new(SourceErrorKind::Length, "unexpected EOF")),
        }
    }
}

impl ReceivedBody {
    /// Compares the digest with the checksum that was sent after the bytes, if one was announced.
    fn verify_checksum(&mut self, stated: Option<&Checksum>) -> Result<(), SourceError> {
        let wrong = |text: String| SourceError::new(SourceErrorKind::Invalid, text);
        let digests = std::mem::take(&mut self.digests);
        // The data path may ask for the end more than once.
        *self.end.lock() = Some(Ok(None));
        if digests.is_empty() {
            return Ok(());
        }
        let stated = stated.ok_or_else(|| {
            wrong("checksum validation failed: the announced checksum was not sent".to_owned())
        })?;
        let names: Vec<_> = digests.iter().map(|(algorithm, _)| algorithm.name()).collect();
        let (_, digest) = digests
            .into_iter()
            .find(|(algorithm, _)| *algorithm == stated.algorithm())
            .ok_or_else(|| {
                wrong(format!(
                    "checksum validation failed: {} was announced, but {} was sent",
                    names.join(" or "),
                    stated.algorithm()
                ))
            })?;
        let verified = stated.verify(&digest.finish_digest());
        verified.map_err(|mismatch| wrong(stream::Error::from(mismatch).to_string()))
    }
}

/// Returns the error for a client that closed its end of the connection.
pub(crate) fn client_gone_error(error: &dyn std::error::Error) -> SourceError {
    tracing::debug!("the client is gone: {}", program::report::error_chain(error));
    SourceError::new(SourceErrorKind::Length, "unexpected EOF")
}

#[cfg(test)]
mod tests {
    use stream::digest::DigestAlgorithm;

    use super::*;

    fn channel(total: Option<u64>, promise: &AnnouncedChecksum) -> (UploadIntake, ReceivedSource) {
        let total = Arc::new(total.map(OnceLock::from).unwrap_or_default());
        super::channel(&total, promise, Arc::default(), CancellationToken::new())
    }

    fn run(sending: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(sending);
    }

    fn read(source: &ReceivedSource) -> Result<Vec<u8>, SourceError> {
        let mut body = source.open_body()?;
        let mut all = Vec::new();
        while let Some(chunk) = body.next_chunk()? {
            all.extend_from_slice(&chunk);
        }
        assert!(matches!(body.next_chunk(), Ok(None)), "a body that ended stays at its end");
        Ok(all)
    }

    #[test]
    fn pushed_bytes_are_read_and_counted() {
        let (mut intake, source) = channel(Some(7), &AnnouncedChecksum::None);
        run(async {
            intake.push_bytes(b"abc").await.unwrap();
            intake.sender.flush().await.unwrap();
            intake.push_bytes(b"defg").await.unwrap();
            assert_eq!(intake.received_bytes(), 7);
            intake.finish_body(None).await;
        });
        assert_eq!(read(&source).unwrap(), b"abcdefg");
        assert!(source.open_body().is_err(), "only once");
    }

    #[test]
    fn an_unexpected_end_is_an_error() {
        let (mut intake, source) = channel(Some(7), &AnnouncedChecksum::None);
        run(async {
            intake.push_bytes(b"abc").await.unwrap();
            intake.finish_body(None).await;
        });
        let error = read(&source).unwrap_err().to_string();
        assert_eq!(error, "unexpected EOF: 3 of 7 bytes were received");

        let (intake, source) = channel(None, &AnnouncedChecksum::None);
        drop(intake);
        assert_eq!(read(&source).unwrap_err().to_string(), "unexpected EOF");
    }

    #[test]
    fn an_announced_trailer_must_come_and_match() {
        let sha256 = |bytes: &[u8]| -> Checksum {
            let mut digest = RunningDigest::new(DigestAlgorithm::Sha256);
            digest.update(bytes);
            digest.finish_digest().parse().unwrap()
        };
        let md5: Checksum = "md5:900150983cd24fb0d6963f7d28e17f72".parse().unwrap();
        for (stated, sentence) in [
            (Some(sha256(b"abc")), None),
            (Some(sha256(b"abd")), Some("checksum mismatch")),
            (Some(md5), Some("sha256 was announced, but md5 was sent")),
            (None, Some("was not sent")),
        ] {
            let announced = AnnouncedChecksum::Later(vec![DigestAlgorithm::Sha256]);
            let (mut intake, source) = channel(None, &announced);
            run(async {
                intake.push_bytes(b"abc").await.unwrap();
                intake.finish_body(stated).await;
            });
            let result = read(&source).map_err(|error| error.to_string());
            match (result, sentence) {
                (Ok(bytes), None) => assert_eq!(bytes, b"abc"),
                (Err(error), Some(sentence)) => assert!(error.contains(sentence), "{error}"),
                (result, _) => panic!("{result:?}"),
            }
        }
    }
}
