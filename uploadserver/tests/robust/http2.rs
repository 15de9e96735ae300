//! The parts of HTTP/2 (RFC 9113) that are needed to begin an upload and to break it off.

use testkit::certs::Offer;
use testkit::fail::OrFail;
use testkit::https::Connection;
use testkit::upload_pod::{Server, UploadPod};

/// Frame types and flags (§6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// The error code of a client that cancels a stream (§7).
const CANCEL: u32 = 8;

/// The largest frame that every server accepts (§4.2).
const MAX_FRAME_BYTES: usize = 16_384;

/// A connection that ignores the server's answers: it sends nothing that needs permission.
pub(crate) struct Http2 {
    connection: Connection,
    next_stream: u32,
    authority: String,
}

impl Http2 {
    /// Connects as the client of `pod` and exchanges the first settings.
    pub(crate) fn open(pod: &UploadPod, server: &Server) -> Self {
        let offer = Offer { identity: Some(pod.client()), protocols: &["h2"], ..Offer::default() };
        let config = pod.authority().client_config_for(&offer).or_fail("TLS");
        let mut http2 = Self {
            connection: server.connect_as(&config),
            next_stream: 1,
            authority: server.address().to_string(),
        };
        http2.connection.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").or_fail("send the preface");
        http2.frame(SETTINGS, 0, 0, &[]);
        http2.frame(SETTINGS, ACK, 0, &[]);
        http2
    }

    /// Begins a POST of `length` bytes and returns its stream.
    pub(crate) fn begin(&mut self, path: &str, length: usize) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        let authority = self.authority.clone();
        let mut block = Vec::new();
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", &authority),
            (":path", path),
            ("content-length", &length.to_string()),
        ] {
            // A literal field that is not indexed, with a literal name (RFC 7541 §6.2.2).
            block.push(0);
            for text in [name, value] {
                // Lengths below 127 are one byte (§5.1).
                block.push(u8::try_from(text.len()).or_fail("a short text"));
                block.extend(text.as_bytes());
            }
        }
        self.frame(HEADERS, END_HEADERS, stream, &block);
        stream
    }

    /// Sends a part of the body.
    pub(crate) fn send(&mut self, stream: u32, bytes: &[u8]) {
        for piece in bytes.chunks(MAX_FRAME_BYTES) {
            self.frame(DATA, 0, stream, piece);
        }
    }

    /// Resets the stream; the connection stays open.
    pub(crate) fn reset(&mut self, stream: u32) {
        self.frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).or_fail("a short frame").to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.connection.send(&frame).or_fail("send a frame");
    }
}
