//! The responses: checksums, and the disk from an offset to its end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use codec::encode::outgoing::{EncodedStream, IncompleteStreamError};
use http::{HeaderName, Method, Request, Response, StatusCode};
use hyper::body::{Body, Frame};
use program::cdi::{DISK_BYTES_HEADER, SERVED_DISK, SERVED_PREFIXES};
use program::threads;
use stream::prefix_crc::PrefixCrc;
use tokio::sync::mpsc;

use super::ServedVolume;
use crate::clone::{encoder_threads, zstd_for_network};
use crate::source::{Tally, VolumeReadError};

/// Number of checksums that wait for the connection.
const WAITING_LINES: usize = 16;

/// The body of a response. Each part that the connection takes counts as activity of the client.
pub(super) struct ServedBody {
    content: VolumeContent,
    volume: Arc<ServedVolume>,
}

enum VolumeContent {
    Text(Option<Bytes>),
    Lines(mpsc::Receiver<Result<PrefixCrc, VolumeReadError>>),
    Disk(Box<EncodedStream<VolumeReadError>>, Arc<Tally>),
}

/// Returns the response to a request, which has no body.
pub(super) fn answer_request<B>(
    volume: &Arc<ServedVolume>,
    request: &Request<B>,
) -> Response<ServedBody> {
    volume.activity.note();
    let respond = |status, content| {
        let mut answer = Response::new(ServedBody { content, volume: Arc::clone(volume) });
        *answer.status_mut() = status;
        let name = HeaderName::from_static(DISK_BYTES_HEADER);
        answer.headers_mut().insert(name, volume.disk.size().into());
        answer
    };
    let text = |status, text: String| respond(status, VolumeContent::Text(Some(text.into())));
    let path = request.uri().path();
    let offset_after = |prefix| path.strip_prefix(prefix).and_then(|text| text.parse().ok());
    let (offset, is_disk) = match (offset_after(SERVED_DISK), offset_after(SERVED_PREFIXES)) {
        (Some(offset), _) => (offset, true),
        (None, Some(offset)) => (offset, false),
        (None, None) => return text(StatusCode::NOT_FOUND, "nothing is served here\n".to_owned()),
    };
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here\n".to_owned());
    }
    let size: u64 = volume.disk.size();
    if offset > size {
        return text(StatusCode::RANGE_NOT_SATISFIABLE, format!("the disk has {size} bytes\n"));
    }
    // A disk that could not be read once is not read again: its client would retry for an hour.
    if let Some(failure) = volume.failure.lock().clone() {
        return text(StatusCode::INTERNAL_SERVER_ERROR, failure);
    }
    let content = if is_disk { disk_content(volume, offset) } else { prefix_lines(volume, offset) };
    match content {
        Ok(content) => respond(StatusCode::OK, content),
        Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, error),
    }
}

/// Starts to read the disk from `offset` to its end.
fn disk_content(volume: &Arc<ServedVolume>, offset: u64) -> Result<VolumeContent, String> {
    let tally = Arc::new(Tally::default());
    let read = Arc::clone(volume);
    let stream = EncodedStream::start(
        move |outlet| {
            let ServedVolume { disk, prefixes, .. } = &*read;
            let mut crc = prefixes.read_until(disk, offset, |_| true)?;
            disk.read_from(offset, outlet, |part| {
                crc.add_part(part.clone(), |prefix| prefixes.add_regular(prefix));
            })?;
            prefixes.add_last(crc.checksum());
            Ok(())
        },
        zstd_for_network(),
        encoder_threads(),
        Arc::clone(&tally),
    );
    let stream = stream.map_err(|error| error.to_string())?;
    Ok(VolumeContent::Disk(Box::new(stream), tally))
}

/// Starts to list the checksums up to `end`.
fn prefix_lines(volume: &Arc<ServedVolume>, end: u64) -> Result<VolumeContent, String> {
    let (lines, waiting) = mpsc::channel(WAITING_LINES);
    let volume = Arc::clone(volume);
    threads::start_thread(move || {
        let passed = |prefix| lines.blocking_send(Ok(prefix)).is_ok();
        if let Err(error) = volume.prefixes.read_until(&volume.disk, end, passed) {
            // The send fails only if the connection was closed.
            lines.blocking_send(Err(error)).ok();
        }
    })
    .map_err(|error| error.to_string())?;
    Ok(VolumeContent::Lines(waiting))
}

impl ServedBody {
    /// Stores the reason why the disk cannot be read, and returns the error that breaks the
    /// connection. The next request gets the reason.
    fn fail(&self, failure: Option<&VolumeReadError>) -> IncompleteStreamError {
        let reason = failure.map_or_else(program::panics::first_panic, ToString::to_string);
        tracing::error!("{reason}");
        *self.volume.failure.lock() = Some(reason);
        IncompleteStreamError
    }
}

impl Body for ServedBody {
    type Data = Bytes;
    type Error = IncompleteStreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, IncompleteStreamError>>> {
        let part = match &mut self.content {
            VolumeContent::Text(text) => text.take().map(Ok),
            VolumeContent::Lines(lines) => match ready!(lines.poll_recv(context)) {
                Some(Ok(prefix)) => {
                    if prefix.end_offset() == self.volume.disk.size() {
                        self.volume.activity.note_complete();
                    }
                    Some(Ok(format!("{prefix}\n").into()))
                }
                Some(Err(error)) => Some(Err(self.fail(Some(&error)))),
                None => None,
            },
            VolumeContent::Disk(stream, tally) => match ready!(stream.poll_part(context)) {
                Some(Err(_)) => {
                    let failure = tally.take_failure();
                    Some(Err(self.fail(failure.as_ref())))
                }
                part => part,
            },
        };
        self.volume.activity.note();
        Poll::Ready(part.map(|part| part.map(Frame::data)))
    }
}
