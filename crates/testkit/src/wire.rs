//! The parts of HTTP/1.1 that the test servers need. They are written by hand because a fault
//! server must be able to send what a correct library never would: wrong lengths, truncated
//! bodies, silence, no framing at all.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest request head that is read.
const HEAD_LIMIT_BYTES: usize = 64 * 1024;

/// A byte stream in both directions: TCP, or TLS over TCP.
pub trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send {
    /// The underlying TCP connection.
    fn tcp(&self) -> &TcpStream;
}

impl Stream for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Stream for tokio_rustls::server::TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// The head of a request. A body is read separately.
#[derive(Debug, Clone)]
pub struct Request {
    /// `GET`, `HEAD`, `CONNECT`, …
    pub method: String,
    /// The request target: a path with query, an absolute URL, or an authority.
    pub target: String,
    /// Headers in order, with names in lower case.
    pub headers: Vec<(String, String)>,
}

impl Request {
    /// Reads one head, or returns `None` if the peer closed the connection between two requests.
    pub async fn read(stream: &mut dyn Stream) -> io::Result<Option<Self>> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) if head.is_empty() => return Ok(None),
                Err(error) => return Err(error),
            }
            if head.len() > HEAD_LIMIT_BYTES {
                return Err(io::Error::other("the request head is too long"));
            }
            // Malformed bytes are refused at once: a client that tries TLS first would wait for a
            // response forever.
            if !head[0].is_ascii_alphabetic() {
                return Err(io::Error::other("not HTTP"));
            }
        }
        Ok(Some(Self::parse(&String::from_utf8_lossy(&head))))
    }

    fn parse(head: &str) -> Self {
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        Self {
            method: words.next().unwrap_or_default().to_owned(),
            target: words.next().unwrap_or_default().to_owned(),
            headers: lines
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                .collect(),
        }
    }

    /// The path without the query, also if the target is an absolute URL, as in requests to a
    /// proxy.
    pub fn path(&self) -> &str {
        let target = self.target.split('?').next().unwrap_or_default();
        match target.strip_prefix("http://") {
            Some(rest) => rest.find('/').map_or("/", |slash| &rest[slash..]),
            None => target,
        }
    }

    /// The value of the first header with this (lower-case) name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Parses `Range: bytes=FIRST-[LAST]` to half-open bounds within `total`; `None` without such
    /// a header.
    pub fn range(&self, total: u64) -> Option<std::ops::Range<u64>> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let end = last.parse::<u64>().map_or(total, |last| total.min(last.saturating_add(1)));
        Some(first.parse().ok()?..end)
    }
}

/// Writes a status line and headers.
pub async fn write_head(
    stream: &mut dyn Stream,
    status: u16,
    headers: &[(String, String)],
) -> io::Result<()> {
    let reason = http::StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason());
    let mut head = format!("HTTP/1.1 {status} {}\r\n", reason.unwrap_or("Unknown"));
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await
}

/// The current time as an HTTP date.
pub fn now() -> String {
    httpdate::fmt_http_date(std::time::SystemTime::now())
}
