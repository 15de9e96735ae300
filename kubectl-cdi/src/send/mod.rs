//! Sends an image to an upload server through the proxy. The upload is resumable; if the server
//! does not support that, the image is sent in one request.
//!
//! ```text
//!  image ─► stream ─► connection ─► proxy
//!             │  └ ledger    pieces that were sent, to resume also in another process: `place`
//!             └ protocol     the requests, and the meaning of the responses
//! ```

mod connection;
mod ledger;
mod location;
mod place;
mod plain;
mod protocol;
mod stall_timer;
mod tokens;
mod upload_body;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use codec::encode::Encoding;
use parking_lot::Mutex;
use program::exit::ExitReason;
use stream::prefix_crc::PrefixCrc;
use tokio::time::{sleep, timeout};

pub(crate) use self::connection::ProxyClient;
use self::ledger::PieceLedger;
use self::location::UploadLocation;
pub(crate) use self::place::{LockedFile, state_folder};
use self::protocol::{UploadRequestError, kept_as_said};
pub(crate) use self::stall_timer::StallTimer;
pub(crate) use self::tokens::TokenCache;
use self::upload_body::{Tally, UploadBody};
pub(crate) use self::watch::UploadWatch;
use crate::error::{PluginError, PluginErrorKind, on_thread};
use crate::image::{ImageFile, KeptPrefix};

/// Time without activity after which a connection is considered dead.
pub(crate) const STALL: Duration = Duration::from_secs(60);

/// Maximum number of uploads that one run begins. If its pod is restarted, the server forgets an
/// upload, and a new one is begun.
const MAX_BEGINNINGS: u32 = 10;

/// Messages of upload servers, CDI's and ours, about a volume that is too small. The status and
/// the first words are not enough, because CDI uses the same ones for every rejected image.
const TOO_SMALL: [&str; 2] = ["A larger PVC is required", "no space left on device"];

/// Statistics of a complete upload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompletedUpload {
    /// Number of bytes, in all streams, that became part of the disk.
    pub(crate) stream_bytes: u64,
    /// Number of bytes that were sent again.
    pub(crate) again: u64,
    /// True if the upload could have been resumed after a failure.
    pub(crate) is_resumable: bool,
}

/// Everything that is needed to run an upload.
pub(crate) struct UploadTask<'a> {
    pub(crate) proxy: &'a ProxyClient,
    pub(crate) tokens: &'a TokenCache,
    pub(crate) image: &'a Arc<ImageFile>,
    pub(crate) encoding: Encoding,
    /// The ledger file, if there is one.
    pub(crate) place: Option<&'a LockedFile>,
    /// True for a tar archive, which cannot be sent in parts to any server.
    pub(crate) is_archive: bool,
    /// Time without progress after which the upload fails.
    pub(crate) stall_limit: Duration,
    pub(crate) watch: &'a Arc<UploadWatch>,
}

/// An upload that exists on the server.
struct UploadSession {
    location: UploadLocation,
    /// Number of bytes of the stream that the server has, or `None` if the server has to be asked.
    has: Option<u64>,
    /// True for an upload that an earlier process started, until the server confirms that it still
    /// has it.
    is_left_behind: bool,
}

impl UploadTask<'_> {
    /// Sends the image and waits until the disk is complete.
    pub(crate) async fn run(&self) -> Result<CompletedUpload, PluginError> {
        if self.is_archive {
            return self.in_one_request(&mut self.stall_timer()).await;
        }
        let file = self.place.and_then(|place| place.clone_file().ok());
        let ledger = Arc::new(Mutex::new(PieceLedger::new(file)));
        let sent = self.in_parts(&ledger).await;
        let is_over = match &sent {
            Ok(_) => true,
            // The server has discarded the data of a rejected image, so the next upload starts
            // over and the ledger is useless.
            Err(error) => error.kind == PluginErrorKind::Rejected || ledger.lock().is_blank(),
        };
        if let Some(place) = self.place
            && is_over
        {
            place.remove_file();
        }
        sent
    }

    /// Sends the image in a resumable upload. If the server does not support that, sends it in one
    /// request.
    async fn in_parts(
        &self,
        ledger: &Arc<Mutex<PieceLedger>>,
    ) -> Result<CompletedUpload, PluginError> {
        let mut stall_timer = self.stall_timer();
        let mut session = self.left_behind(ledger);
        let mut beginnings = 0;
        loop {
            let ended = match &mut session {
                Some(session) => self.go_on(session, ledger, &mut stall_timer).await,
                None if beginnings == MAX_BEGINNINGS => Err(UploadRequestError::Missing),
                None => {
                    beginnings += 1;
                    match self.begin_session(ledger).await {
                        Ok(Some(begun)) => {
                            stall_timer.reset_bytes();
                            session = Some(begun);
                            continue;
                        }
                        Ok(None) => return self.in_one_request(&mut stall_timer).await,
                        Err(trouble) => Err(trouble),
                    }
                }
            };
            match ended {
                Ok(()) => break,
                Err(UploadRequestError::Failed(error)) if error.may_pass() => {
                    self.wait_before_retry(&mut stall_timer, &error).await?
                }
                Err(UploadRequestError::Unauthorized) if self.tokens.discard_token() => {}
                // The earlier process was told why its upload ended. Here that is not an error: a
                // new upload begins.
                Err(UploadRequestError::Ended(_))
                    if session.take_if(|session| session.is_left_behind).is_some() =>
                {
                    tracing::warn!("the upload of an earlier process has ended: starting over");
                }
                Err(UploadRequestError::Missing) if session.take().is_some() => {
                    tracing::warn!("the upload server no longer knows this upload: starting over");
                }
                Err(trouble) => return Err(self.send_error(trouble)),
            }
            if let Some(session) = &mut session {
                // After a failure, only the server can tell which bytes have arrived.
                session.has = None;
            }
        }
        self.image.check_unchanged()?;
        self.verify_checksum().await.map_err(|trouble| self.send_error(trouble))?;
        let stream_bytes = {
            let ledger = ledger.lock();
            ledger.stream_position() + ledger.saved_bytes()
        };
        Ok(self.completed_upload(stream_bytes, true))
    }

    fn completed_upload(&self, stream_bytes: u64, is_resumable: bool) -> CompletedUpload {
        let again = self.watch.handed_over().saturating_sub(stream_bytes);
        CompletedUpload { stream_bytes, again, is_resumable }
    }

    fn stall_timer(&self) -> StallTimer<'_> {
        StallTimer::new(self.stall_limit, self.watch)
    }

    /// Waits before the next attempt. Fails if there was no progress for too long.
    async fn wait_before_retry(
        &self,
        stall_timer: &mut StallTimer<'_>,
        cause: &PluginError,
    ) -> Result<(), PluginError> {
        let waited = stall_timer.wait_before_retry(cause, self.proxy.was_reached()).await;
        waited.map_err(|seconds| {
            let url = self.proxy.display_url();
            PluginError::target(format!(
                "the upload proxy at {url} was not reached for {seconds} s: {cause}; can it be reached from here? Use an Ingress, a \
                 Route, or `kubectl port-forward -n cdi service/cdi-uploadproxy 8443:443` with --uploadproxy-url \
                 https://localhost:8443"
            ))
        })
    }

    /// Returns the upload that an earlier process has recorded in the ledger, if its encoding is
    /// the same.
    fn left_behind(&self, ledger: &Mutex<PieceLedger>) -> Option<UploadSession> {
        let upload = ledger.lock().load_file(&self.image.identity)?;
        (upload.is_encoded == self.is_encoded()).then_some(UploadSession {
            location: upload.location,
            has: None,
            is_left_behind: true,
        })
    }

    fn is_encoded(&self) -> bool {
        matches!(self.encoding, Encoding::Zstd(_))
    }

    /// Begins an upload; returns `None` if the server does not support resumable uploads.
    async fn begin_session(
        &self,
        ledger: &Mutex<PieceLedger>,
    ) -> Result<Option<UploadSession>, UploadRequestError> {
        let marks = self.prefix_marks(ledger).await?;
        let Some((location, known)) = in_time(self.begin_upload(&marks)).await? else {
            return Ok(None);
        };
        let kept = match known {
            Some(kept) => kept,
            None => self.wait_for_kept(&location).await?,
        };
        let (end, bytes) = (kept.end_offset(), self.image.identity.bytes);
        if end > bytes {
            return Err(UploadRequestError::Ended(format!(
                "the upload server reports {end} bytes of a disk that has only {bytes}"
            )));
        }
        if end > 0 {
            tracing::warn!("the server already has {end} bytes of the disk");
        }
        let (image, is_encoded) = (&self.image.identity, self.is_encoded());
        ledger.lock().begin_upload(image, is_encoded, &location, kept);
        Ok(Some(UploadSession { location, has: Some(0), is_left_behind: false }))
    }

    /// Asks the server repeatedly until it has found out what it has kept from an earlier upload.
    async fn wait_for_kept(
        &self,
        location: &UploadLocation,
    ) -> Result<KeptPrefix, UploadRequestError> {
        loop {
            match in_time(self.send_head(location)).await {
                Ok(answer) => {
                    if let Some(kept) = kept_as_said(&answer) {
                        return Ok(kept);
                    }
                }
                Err(UploadRequestError::Missing) => {
                    return Err(PluginError::passing("the upload server was restarted").into());
                }
                Err(trouble) => return Err(trouble),
            }
            // The pause is fixed, so that no response can make this loop poll faster.
            sleep(stall_timer::FIRST_PAUSE).await;
        }
    }

    /// Computes checksums of the prefixes that a restarted upload server may still have. Returns
    /// an empty list if nothing was sent yet, or if the image is not a raw disk.
    async fn prefix_marks(
        &self,
        ledger: &Mutex<PieceLedger>,
    ) -> Result<Vec<PrefixCrc>, UploadRequestError> {
        let offset = ledger.lock().image_offset();
        if offset == 0 || !self.image.is_raw() {
            return Ok(Vec::new());
        }
        self.watch.set_wait_reason("checking which part of the disk the upload server already has");
        let image = Arc::clone(self.image);
        // This reads all data that was sent before, so it runs on a blocking thread.
        Ok(on_thread(move || image.prefix_marks(offset)).await?)
    }

    /// Sends the bytes that the server does not have yet, and then completes the upload.
    async fn go_on(
        &self,
        session: &mut UploadSession,
        ledger: &Arc<Mutex<PieceLedger>>,
        stall_timer: &mut StallTimer<'_>,
    ) -> Result<(), UploadRequestError> {
        let location = &session.location;
        let has = match session.has {
            Some(has) => has,
            None => match in_time(self.query_progress(location)).await {
                Ok((_, true)) => return Ok(()),
                Ok((has, false)) => has,
                // The response to a HEAD request has no body. A PATCH request returns the reason
                // once more, in case the first response that contained it was lost.
                Err(UploadRequestError::Ended(_)) if !session.is_left_behind => {
                    in_time(self.append_bytes(location, 0, None)).await?
                }
                Err(trouble) => return Err(trouble),
            },
        };
        session.is_left_behind = false;
        stall_timer.note_progress(has);
        let stream = UploadBody::resume_after(has, self.image, self.encoding, ledger, self.watch);
        let (stream, tally) = stream?.ok_or(UploadRequestError::Missing)?;
        let appending = self.append_bytes(location, has, Some(stream));
        let taken = self.while_it_moves(&tally, appending).await?;
        stall_timer.note_progress(taken);
        let (total, checksum) = {
            let ledger = ledger.lock();
            (ledger.stream_position(), ledger.checksum_header())
        };
        if taken != total {
            let words = format!("the server has {taken} bytes of {total}");
            return Err(PluginError::passing(words).into());
        }
        self.verify_checksum().await?;
        self.watch.set_wait_reason("the upload server is checking the disk and writing the rest");
        self.finish_upload(location, total, &checksum).await
    }

    /// Fails if the image does not have the checksum that the user gave. After a resumed upload,
    /// this reads the part that an earlier process has sent.
    async fn verify_checksum(&self) -> Result<(), UploadRequestError> {
        if !self.image.has_checksum() {
            return Ok(());
        }
        self.watch.set_wait_reason("verifying the checksum of the image");
        let image = Arc::clone(self.image);
        Ok(on_thread(move || image.verify_checksum()).await?)
    }

    /// Waits for the response to a stream, and fails if nothing moves for [`STALL`]. If the image
    /// cannot be read, that error is returned whatever the server responds.
    async fn while_it_moves<T>(
        &self,
        tally: &Tally,
        sending: impl Future<Output = Result<T, UploadRequestError>>,
    ) -> Result<T, UploadRequestError> {
        self.watch.note_activity();
        let answer = tokio::select! {
            answer = sending => answer,
            () = self.watch.wait_for_stall(STALL) => {
                Err(PluginError::passing(format!("no progress for {} s", STALL.as_secs())).into())
            }
        };
        match tally.take_failure() {
            Some(failure) => Err(failure.into()),
            None => answer,
        }
    }

    /// Converts an error that ended an upload to the error that is shown to the user.
    fn send_error(&self, trouble: UploadRequestError) -> PluginError {
        let url = self.proxy.display_url();
        match trouble {
            UploadRequestError::Failed(error) => error,
            UploadRequestError::Refused(words) => {
                let (exit, message) = if TOO_SMALL.iter().any(|reason| words.contains(reason)) {
                    let advice = "upload into a larger one, see --size";
                    (ExitReason::NoSpace, format!("the volume is too small: {words}; {advice}"))
                } else {
                    (ExitReason::Image, format!("the upload server rejected the image: {words}"))
                };
                PluginError::rejected(exit, message)
            }
            UploadRequestError::Ended(words) => {
                PluginError::target(format!("the upload has failed: {words}"))
            }
            UploadRequestError::Missing => PluginError::target(format!(
                "the upload has failed: {url} repeatedly answers that it does not have the upload: is that the upload proxy of this \
                 cluster? Check --uploadproxy-url"
            )),
            UploadRequestError::Unauthorized => PluginError::target(format!(
                "the token for the upload is not accepted at {url}: is it the upload proxy of this cluster?"
            )),
        }
    }
}

/// Waits for the response to a short request, for at most [`STALL`].
async fn in_time<T>(
    asking: impl Future<Output = Result<T, UploadRequestError>>,
) -> Result<T, UploadRequestError> {
    let silent = |_| PluginError::passing(format!("no answer for {} s", STALL.as_secs()));
    timeout(STALL, asking).await.map_err(silent)?
}
