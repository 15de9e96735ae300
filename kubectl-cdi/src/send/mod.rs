//! Sending an image to an upload server, through the proxy: in one upload that goes on wherever the server is, or in one request
//! where the server knows no other.
//!
//! ```text
//!  image ─► stream ─► connection ─► proxy
//!             │  └ ledger    what was sent, so that it can go on in the middle, also in another process: `place`
//!             └ protocol     the requests, and what their answers mean
//! ```

mod connection;
mod ledger;
mod location;
mod patience;
mod place;
mod plain;
mod protocol;
mod stream;
mod tokens;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use datapath::disk::Mark;
use datapath::encode::Encoding;
use http_body_util::Empty;
use parking_lot::Mutex;
use program::threads;
use tokio::time::{sleep, timeout};

pub(crate) use self::connection::{NoProxy, Proxy, Trust};
use self::ledger::Ledger;
use self::location::UploadLocation;
use self::patience::Patience;
pub(crate) use self::place::{InUse, Place};
use self::protocol::{Begun, Trouble};
use self::stream::{Stream, Tally};
pub(crate) use self::tokens::Tokens;
pub(crate) use self::watch::Watch;
use crate::cluster::ClusterError;
use crate::image::{Image, Kept, NoImage};

/// A connection over which nothing has moved for so long is taken for dead.
const STALL: Duration = Duration::from_secs(60);

/// Uploads that are begun anew because the server does not know them any more: its pod was started anew.
const MAX_BEGINNINGS: u32 = 10;

/// Reasons in answers of upload servers, CDI's and ours, that are about the volume: CDI has the
/// same status and the same first words for every image that it refuses.
const TOO_SMALL: [&str; 2] = ["A larger PVC is required", "no space left on device"];

/// An upload that did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendFailed {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Image(#[from] NoImage),
    #[error(transparent)]
    InUse(#[from] InUse),
    /// The server's words about the image.
    #[error("the upload server refuses the image: {0}")]
    Refused(String),
    /// The server's words about its volume.
    #[error("the volume is too small: {0}; upload into a larger one, see --size")]
    TooSmall(String),
    /// The server's words about itself.
    #[error("the upload has failed: {0}")]
    Failed(String),
    #[error("the token for the upload is not accepted at {0}: is it the upload proxy of this cluster?")]
    Unauthorized(String),
    #[error(transparent)]
    Untrusted(NoProxy),
    #[error(
        "the upload proxy at {url} was not reached for {seconds} s: {words}; can it be reached from here? An Ingress, a Route, or \
         `kubectl port-forward -n cdi service/cdi-uploadproxy 8443:443` with --uploadproxy-url https://localhost:8443 lets it"
    )]
    Unreachable {
        url: String,
        seconds: u64,
        words: String,
    },
}

/// An upload that is complete.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// Bytes of all streams that became part of the disk.
    pub(crate) stream_bytes: u64,
    /// Bytes that were sent again.
    pub(crate) again: u64,
    /// True if it could have been continued.
    pub(crate) is_resumable: bool,
}

/// An upload.
pub(crate) struct Sending<'a> {
    pub(crate) proxy: &'a Proxy,
    pub(crate) tokens: &'a Tokens,
    pub(crate) image: &'a Arc<Image>,
    pub(crate) encoding: Encoding,
    /// The place of its ledger, if there is one.
    pub(crate) place: Option<&'a Place>,
    /// True for a tar, which no server takes in parts.
    pub(crate) is_archive: bool,
    /// Time without a byte after which it is given up.
    pub(crate) patience: Duration,
    pub(crate) watch: &'a Arc<Watch>,
}

/// An upload at the server.
struct Session {
    location: UploadLocation,
    /// Bytes that the server has, if that is known.
    has: Option<u64>,
    /// True for an upload that another process has left, until the server knows it.
    is_left_behind: bool,
}

impl Sending<'_> {
    /// Sends the image, until its disk is complete.
    pub(crate) async fn run(&self) -> Result<Sent, SendFailed> {
        if self.is_archive {
            return self.in_one_request(&mut Patience::new(self)).await;
        }
        let file = self.place.and_then(|place| place.file().ok());
        let ledger = Arc::new(Mutex::new(Ledger::new(file)));
        let sent = self.in_parts(&ledger).await;
        let is_over = match &sent {
            // The server has given up what was sent of a refused image: the next upload begins
            // again.
            Ok(_) | Err(SendFailed::Refused(_) | SendFailed::TooSmall(_)) => true,
            Err(_) => ledger.lock().is_blank(),
        };
        if let Some(place) = self.place
            && is_over
        {
            place.remove();
        }
        sent
    }

    /// Sends the image in an upload that can be continued, or in one request if the server knows no other.
    async fn in_parts(&self, ledger: &Arc<Mutex<Ledger>>) -> Result<Sent, SendFailed> {
        let mut patience = Patience::new(self);
        let mut session = self.left_behind(ledger);
        let mut beginnings = 0;
        loop {
            let ended = match &mut session {
                Some(session) => self.go_on(session, ledger, &mut patience).await,
                None if beginnings == MAX_BEGINNINGS => Err(Trouble::Missing),
                None => {
                    beginnings += 1;
                    match self.begin(ledger).await {
                        Ok(Some(begun)) => {
                            patience.begins();
                            session = Some(begun);
                            continue;
                        }
                        Ok(None) => return self.in_one_request(&mut patience).await,
                        Err(trouble) => Err(trouble),
                    }
                }
            };
            match ended {
                Ok(()) => break,
                Err(Trouble::Passing(words)) => patience.pause(words).await?,
                Err(Trouble::Unauthorized) if self.tokens.renew() => {}
                // Why it has ended, the process that has left it was told.
                Err(Trouble::Ended(_)) if session.take_if(|session| session.is_left_behind).is_some() => {
                    tracing::warn!("the upload that another process has left has ended: it begins again");
                }
                Err(Trouble::Missing) if session.take().is_some() => {
                    tracing::warn!("the upload server does not know this upload any more: it begins anew");
                }
                Err(trouble) => return Err(self.failed(trouble)),
            }
            if let Some(session) = &mut session {
                session.has = None;
            }
        }
        self.image.check_unchanged()?;
        let stream_bytes = {
            let ledger = ledger.lock();
            ledger.position() + ledger.saved()
        };
        Ok(Sent {
            stream_bytes,
            again: self.watch.handed_over().saturating_sub(stream_bytes),
            is_resumable: true,
        })
    }

    /// The upload that another process has left.
    fn left_behind(&self, ledger: &Mutex<Ledger>) -> Option<Session> {
        let upload = ledger.lock().read(&self.image.identity)?;
        (upload.is_encoded == self.is_encoded()).then_some(Session {
            location: upload.location,
            has: None,
            is_left_behind: true,
        })
    }

    fn is_encoded(&self) -> bool {
        self.encoding == Encoding::Zstd
    }

    /// Begins an upload; `None` if the server knows none that can be continued.
    async fn begin(&self, ledger: &Mutex<Ledger>) -> Result<Option<Session>, Trouble> {
        let marks = self.marks(ledger).await?;
        let token = self.tokens.current().await?;
        match in_time(protocol::begin(self.proxy, &token, &marks)).await? {
            Begun::NotHere => Ok(None),
            Begun::At(location, known) => {
                let kept = match known {
                    Some(kept) => kept,
                    None => self.kept(&location).await?,
                };
                let (end, bytes) = (kept.end(), self.image.identity.bytes);
                if end > bytes {
                    return Err(Trouble::Ended(format!(
                        "the upload server says that {end} bytes of the disk are there, which has {bytes}"
                    )));
                }
                if kept.end() > 0 {
                    tracing::warn!("{} bytes of the disk are there already", kept.end());
                }
                let (image, is_encoded) = (&self.image.identity, self.is_encoded());
                ledger.lock().begin(image, is_encoded, &location, kept);
                Ok(Some(Session {
                    location,
                    has: Some(0),
                    is_left_behind: false,
                }))
            }
        }
    }

    /// What the server has kept of an earlier upload, when it has found that out.
    async fn kept(&self, location: &UploadLocation) -> Result<Kept, Trouble> {
        loop {
            let token = self.tokens.current().await?;
            let asking = protocol::kept(self.proxy, &token, location);
            match in_time(asking).await {
                Ok(Some(kept)) => return Ok(kept),
                Ok(None) => {}
                Err(Trouble::Missing) => {
                    return Err(Trouble::Passing("the upload server was started anew".to_owned()));
                }
                Err(trouble) => return Err(trouble),
            }
            // Not more often, whatever the server says.
            sleep(patience::FIRST_PAUSE).await;
        }
    }

    /// Marks of what an upload server may have that was started anew.
    async fn marks(&self, ledger: &Mutex<Ledger>) -> Result<Vec<Mark>, Trouble> {
        let offset = ledger.lock().image_offset();
        if offset == 0 || !self.image.is_raw() {
            return Ok(Vec::new());
        }
        self.watch
            .wait("looking for what the upload server has of the disk");
        let image = Arc::clone(self.image);
        // Reads all of it that was sent.
        let marks = threads::run(move || image.marks(offset)).await;
        let marks = marks.map_err(|error| Trouble::Ended(error.to_string()))?;
        marks.map_err(|error| Trouble::Image(Box::new(error)))
    }

    /// Sends what the server has not, and tells it that this was all.
    async fn go_on(
        &self,
        session: &mut Session,
        ledger: &Arc<Mutex<Ledger>>,
        patience: &mut Patience<'_>,
    ) -> Result<(), Trouble> {
        let (proxy, location) = (self.proxy, &session.location);
        let token = self.tokens.current().await?;
        let has = match session.has {
            Some(has) => has,
            None => match in_time(protocol::progress(proxy, &token, location)).await {
                Ok((_, true)) => return Ok(()),
                Ok((has, false)) => has,
                // The answer to a HEAD has no words. That to a PATCH says why, if the first one
                // that did was lost.
                Err(Trouble::Ended(_)) if !session.is_left_behind => {
                    let asking = protocol::append(proxy, &token, location, 0, Empty::new());
                    in_time(asking).await?
                }
                Err(trouble) => return Err(trouble),
            },
        };
        session.is_left_behind = false;
        patience.reached(has);
        let stream = Stream::behind(has, self.image, self.encoding, ledger, self.watch);
        let (stream, tally) = stream?.ok_or(Trouble::Missing)?;
        let appending = protocol::append(proxy, &token, location, has, stream);
        let taken = self.while_it_moves(&tally, appending).await?;
        patience.reached(taken);
        let (total, checksum) = {
            let ledger = ledger.lock();
            (ledger.position(), ledger.checksum())
        };
        if taken != total {
            return Err(Trouble::Passing(format!(
                "the server has {taken} bytes of {total}"
            )));
        }
        self.watch
            .wait("the upload server checks the disk and writes the last of it");
        let token = self.tokens.current().await?;
        protocol::finish(proxy, &token, location, total, &checksum).await
    }

    /// Waits for the answer to a stream. The reason why the image cannot be read is the reason, whatever the server says.
    async fn while_it_moves<T>(
        &self,
        tally: &Tally,
        sending: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        self.watch.touch();
        let answer = tokio::select! {
            answer = sending => answer,
            () = self.watch.stopped(STALL) => {
                Err(Trouble::Passing(format!("nothing has moved for {} s", STALL.as_secs())))
            }
        };
        match tally.take_failure() {
            Some(failure) => Err(Trouble::Image(Box::new(failure))),
            None => answer,
        }
    }

    /// The end, in a sentence.
    fn failed(&self, trouble: Trouble) -> SendFailed {
        let url = self.proxy.url().to_owned();
        match trouble {
            Trouble::Cluster(error) => SendFailed::Cluster(*error),
            Trouble::Image(error) => SendFailed::Image(*error),
            Trouble::Refused {
                words,
                is_image: true,
            } => match TOO_SMALL.iter().any(|reason| words.contains(reason)) {
                true => SendFailed::TooSmall(words),
                false => SendFailed::Refused(words),
            },
            Trouble::Refused { words, .. } | Trouble::Ended(words) | Trouble::Passing(words) => {
                SendFailed::Failed(words)
            }
            Trouble::Missing => SendFailed::Failed("the upload server forgets it again and again".to_owned()),
            Trouble::Unauthorized => SendFailed::Unauthorized(url),
            Trouble::Untrusted(words) => SendFailed::Untrusted(self.proxy.untrusted(words)),
        }
    }
}

/// The answer to a question that every server answers soon.
async fn in_time<T>(asking: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    let silent = |_| Trouble::Passing(format!("no answer for {} s", STALL.as_secs()));
    timeout(STALL, asking).await.map_err(silent)?
}
