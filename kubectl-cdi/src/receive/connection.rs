//! Requests to the reader pod: HTTP/1.1 through a port-forward.
//!
//! The pod is not trusted: its image may be any, and whoever can write to the namespace can
//! replace it. Sizes and lines are checked, and nothing that it sends becomes a name.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use https::client;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kube::api::Portforwarder;
use program::cdi::{DISK_BYTES_HEADER, READER_PORT, SERVED_PREFIXES};
use program::report::error_chain;
use stream::prefix_crc::{PREFIX_STEP_BYTES, PrefixCrc};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::cluster::printable_line;
use crate::error::PluginError;
use crate::send::{STALL, UploadWatch};

/// Limit on the size of a disk: 1 PiB, which exceeds the size of any volume.
pub(super) const MAX_DISK_BYTES: u64 = 1 << 50;

/// Maximum number of bytes that are read ahead of the decoder.
const READ_BYTES: usize = 256 << 10;

/// Limit on a line with a checksum: 20 digits, a colon and 16 digits.
const MAX_LINE_BYTES: usize = 64;

/// Time limit for a message about a broken port-forward that may still arrive.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// A connection to the reader pod. It is closed when dropped.
pub(super) struct ReaderConnection {
    sender: SendRequest<Empty<Bytes>>,
    forwarder: Portforwarder,
    _connection: AbortOnDropHandle<()>,
}

impl Drop for ReaderConnection {
    fn drop(&mut self) {
        self.forwarder.abort();
    }
}

impl ReaderConnection {
    /// Starts HTTP on a forwarded port.
    pub(super) async fn start(mut forwarder: Portforwarder) -> Result<Self, PluginError> {
        let stream = forwarder.take_stream(READER_PORT).ok_or_else(|| broken("no stream"))?;
        let handshake =
            http1::Builder::new().max_buf_size(READ_BYTES).handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await.map_err(|error| broken(&error_chain(&error)))?;
        let connection = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("the connection failed: {}", error_chain(&error));
            }
        });
        Ok(Self { sender, forwarder, _connection: AbortOnDropHandle::new(connection) })
    }

    /// Requests the size of the disk in bytes.
    pub(super) async fn query_size(&mut self) -> Result<u64, PluginError> {
        let (size, response) = self.get(SERVED_PREFIXES, 0).await?;
        // The body has one line, and is read so that the connection can be used again.
        read_message(response).await;
        Ok(size)
    }

    /// Requests the checksums of the disk up to `end`, and compares them with those that `known`
    /// returns. Returns the last one that is equal, or `None` if the first one differs.
    pub(super) async fn query_equal_prefix(
        &mut self,
        end: u64,
        size: u64,
        watch: &UploadWatch,
        known: impl Fn(u64) -> Option<PrefixCrc>,
    ) -> Result<Option<PrefixCrc>, PluginError> {
        let mut body = self.get_of(SERVED_PREFIXES, end, size).await?;
        let (mut waiting, mut equal, mut last) = (Vec::new(), None, None);
        while last.is_none_or(|last| last < end) {
            let Some(part) = next_part(&mut body).await? else {
                return Err(broken("the list of checksums ended early"));
            };
            watch.note_activity();
            waiting.extend_from_slice(&part);
            let mut parsed = 0;
            while let Some(length) = waiting[parsed..].iter().position(|byte| *byte == b'\n') {
                let line = parsed..=parsed + length;
                parsed += length + 1;
                let prefix = parse_line(&waiting[line], last, end)?;
                last = Some(prefix.end_offset());
                match known(prefix.end_offset()) {
                    Some(own) if own != prefix => return Ok(equal),
                    Some(_) => equal = Some(prefix),
                    None => {}
                }
            }
            waiting.drain(..parsed);
            if waiting.len() > MAX_LINE_BYTES {
                return Err(protocol("a line of checksums that does not end"));
            }
        }
        // The end of the body is read, so that the connection can be used again.
        match next_part(&mut body).await? {
            Some(_) => Err(protocol("too many checksums")),
            None => Ok(equal),
        }
    }

    /// Requests a part of the disk or its checksums. Fails if the size of the disk is not the
    /// expected one any more.
    pub(super) async fn get_of(
        &mut self,
        path: &str,
        offset: u64,
        size: u64,
    ) -> Result<Incoming, PluginError> {
        let (now, response) = self.get(path, offset).await?;
        if now != size {
            return Err(protocol(&format!(
                "a disk of {now} bytes, although it had {size} bytes before"
            )));
        }
        Ok(response.into_body())
    }

    async fn get(
        &mut self,
        path: &str,
        offset: u64,
    ) -> Result<(u64, Response<Incoming>), PluginError> {
        let request = Request::get(format!("{path}{offset}"))
            .header(header::HOST, "localhost")
            .body(Empty::new())
            .map_err(PluginError::internal)?;
        // The connection is ready again only after its task has read the end of the last response.
        let answered = async {
            self.sender.ready().await?;
            self.sender.send_request(request).await
        };
        let response = match timeout(STALL, answered).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(broken(&self.failure_words(&error).await)),
            Err(_) => return Err(silent()),
        };
        match response.status() {
            StatusCode::OK => {}
            StatusCode::INTERNAL_SERVER_ERROR => {
                let words = read_message(response).await;
                return Err(unreadable_volume(&words));
            }
            StatusCode::SERVICE_UNAVAILABLE => return Err(broken(&read_message(response).await)),
            status => return Err(protocol(&format!("the status {status}"))),
        }
        let size = response.headers().get(DISK_BYTES_HEADER);
        let size = size.and_then(|value| value.to_str().ok()?.parse().ok());
        match size.filter(|size| *size <= MAX_DISK_BYTES) {
            Some(size) => Ok((size, response)),
            None => Err(protocol("no valid size of the disk")),
        }
    }

    /// Describes a failed request. The kubelet reports why it cannot reach the port.
    async fn failure_words(&mut self, error: &hyper::Error) -> String {
        let reported = match self.forwarder.take_error(READER_PORT) {
            Some(reported) => timeout(LAST_WORDS, reported).await.ok().flatten(),
            None => None,
        };
        reported.map_or_else(|| error_chain(error), |words| printable_line(&words))
    }
}

/// Returns the next bytes of a body, or `None` at its end.
pub(super) async fn next_part(body: &mut Incoming) -> Result<Option<Bytes>, PluginError> {
    loop {
        match timeout(STALL, body.frame()).await {
            Err(_) => return Err(silent()),
            Ok(None) => return Ok(None),
            Ok(Some(Err(error))) => return Err(broken(&error_chain(&error))),
            // Trailers have no meaning here.
            Ok(Some(Ok(frame))) => {
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
        }
    }
}

fn parse_line(line: &[u8], last: Option<u64>, end: u64) -> Result<PrefixCrc, PluginError> {
    let text = str::from_utf8(line).unwrap_or_default().trim_end();
    let prefix: PrefixCrc = text.parse().map_err(|_| protocol("a malformed checksum"))?;
    let at = prefix.end_offset();
    // Otherwise the list could be endless.
    let is_next = last.is_none_or(|last| at > last);
    if is_next && at <= end && (at == end || at.is_multiple_of(PREFIX_STEP_BYTES)) {
        Ok(prefix)
    } else {
        Err(protocol(&format!("a checksum at the unexpected offset {at}")))
    }
}

/// Returns the message in a response, as one line.
async fn read_message(response: Response<Incoming>) -> String {
    printable_line(&client::read_message(response).await)
}

fn broken(words: &str) -> PluginError {
    PluginError::passing(format!("the connection to the reader pod broke: {words}"))
}

fn silent() -> PluginError {
    PluginError::passing(format!("the reader pod is silent for {} s", STALL.as_secs()))
}

/// Creates the error for a pod that does not follow the protocol.
pub(super) fn protocol(words: &str) -> PluginError {
    let message = format!("the pod that reads the volume answers with {words}; check --image");
    PluginError::unread(message)
}

/// Creates the error for a volume that the pod cannot read.
pub(super) fn unreadable_volume(words: &str) -> PluginError {
    PluginError::unread(format!("the volume cannot be read: {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_must_ascend_to_the_requested_offset() {
        const MIB: u64 = 1 << 20;
        let line = |at: u64| format!("{at}:0123456789abcdef\n").into_bytes();
        let parse = |at: u64, last| parse_line(&line(at), last, 100 * MIB).is_ok();
        assert!(parse(64 * MIB, None));
        assert!(parse(100 * MIB, Some(64 * MIB)));
        for (at, last) in [
            (64 * MIB, Some(64 * MIB)),
            (0, Some(64 * MIB)),
            (63 * MIB, None),
            (128 * MIB, Some(64 * MIB)),
        ] {
            assert!(!parse(at, last), "{at}");
        }
        for text in ["", "\n", "64\n", "\u{e9}\n"] {
            assert!(parse_line(text.as_bytes(), None, 0).is_err(), "{text:?}");
        }
    }
}
