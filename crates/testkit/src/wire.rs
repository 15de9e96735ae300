//! The parts of HTTP/1.1 that the test servers need. They are written by hand because a fault
//! server must be able to send what a correct library never would: wrong lengths, truncated
//! bodies, silence, no framing at all.

use std::io;
use std::ops::Range;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Longest head that is read.
const HEAD_LIMIT_BYTES: usize = 256 * 1024;

/// Bytes of a body that are read at a time.
const READ_BYTES: u64 = 64 * 1024;

/// A byte stream in both directions: TCP, or TLS over TCP.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {
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

impl<S: Stream> Stream for BufReader<S> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().tcp()
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
        let head = read_head(stream).await;
        if head.is_empty() {
            return Ok(None);
        }
        let (line, headers) = parse_head(&head)?;
        let mut words = line.split(' ').map(str::to_owned);
        let mut word = || words.next().unwrap_or_default();
        Ok(Some(Self { method: word(), target: word(), headers }))
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
        header(&self.headers, name)
    }

    /// The length of the body; 0 if the head states none.
    pub(crate) fn body_bytes(&self) -> u64 {
        let length = self.header("content-length").and_then(|length| length.parse().ok());
        length.unwrap_or(0)
    }

    /// Parses `Range: bytes=FIRST-[LAST]` to half-open bounds within `total`; `None` without such
    /// a header.
    pub fn range(&self, total: u64) -> Option<Range<u64>> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let end = last.parse::<u64>().map_or(total, |last| total.min(last.saturating_add(1)));
        Some(first.parse().ok()?..end)
    }
}

/// The response to a request for this `range` of an object of `total` bytes: status, bytes, and
/// `Content-Range`.
pub(crate) fn partial(
    range: Option<Range<u64>>,
    total: usize,
) -> (u16, Range<usize>, Option<(String, String)>) {
    let said = |text: String| Some(("Content-Range".to_owned(), text));
    let Some(range) = range else {
        return (200, 0..total, None);
    };
    if range.is_empty() {
        return (416, 0..0, said(format!("bytes */{total}")));
    }
    let text = format!("bytes {}-{}/{total}", range.start, range.end - 1);
    (206, to_usize(range.start)..to_usize(range.end), said(text))
}

pub(crate) fn to_usize(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

/// The value of the first of `headers` with this (lower-case) name.
pub(crate) fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
}

/// Reads one head with its empty line. It is empty at the end of the connection, and incomplete if
/// the connection ends early, or the bytes are not HTTP: a client that tries TLS first would wait
/// for a response forever.
pub(crate) async fn read_head(stream: &mut (impl AsyncRead + Unpin + ?Sized)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_LIMIT_BYTES {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
        if !head[0].is_ascii_alphabetic() {
            break;
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Splits a complete head into its first line and its headers, with names in lower case.
pub(crate) fn parse_head(head: &str) -> io::Result<(&str, Vec<(String, String)>)> {
    let whole = head.strip_suffix("\r\n\r\n");
    let whole = whole.ok_or_else(|| io::Error::other(format!("not HTTP: {head:?}")))?;
    let (line, headers) = whole.split_once("\r\n").unwrap_or((whole, ""));
    let headers = headers
        .split("\r\n")
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
    Ok((line, headers.collect()))
}

/// The part of a body that has not been read yet (RFC 9112 §6.3).
pub(crate) enum Incoming {
    /// This number of bytes.
    Length(u64),
    /// This number of bytes of a chunk, and further chunks.
    Chunk(u64),
    /// Everything up to the end of the connection.
    UntilClose,
}

impl Incoming {
    /// Reads the next bytes; none at the end. Trailers are dropped. A body that ends early or is
    /// framed wrongly is an error.
    pub(crate) async fn next(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin + ?Sized),
    ) -> io::Result<Vec<u8>> {
        if let Self::Chunk(left @ 0) = self {
            *left = u64::from_str_radix(&line(stream).await?, 16).map_err(io::Error::other)?;
            if *left == 0 {
                while !line(stream).await?.is_empty() {}
                *self = Self::Length(0);
            }
        }
        let most = match self {
            Self::Length(left) | Self::Chunk(left) => READ_BYTES.min(*left),
            Self::UntilClose => READ_BYTES,
        };
        let mut piece = vec![0; to_usize(most)];
        if most == 0 {
            // A buffered stream would wait for further bytes even so.
            return Ok(piece);
        }
        let read = stream.read(&mut piece).await?;
        piece.truncate(read);
        match self {
            Self::UntilClose => {}
            _ if read == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Self::Length(left) => *left -= read as u64,
            Self::Chunk(left) => {
                *left -= read as u64;
                if *left == 0 && !line(stream).await?.is_empty() {
                    return Err(io::Error::other("a chunk is longer than it says"));
                }
            }
        }
        Ok(piece)
    }
}

/// Reads a line and returns it without its end.
async fn line(stream: &mut (impl AsyncRead + Unpin + ?Sized)) -> io::Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&line[..line.len() - 2]).into_owned())
}

/// Writes a status line and headers.
pub async fn write_head(
    stream: &mut dyn Stream,
    status: u16,
    headers: &[(String, String)],
) -> io::Result<()> {
    let reason = http::StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason());
    let mut head = format!("HTTP/1.1 {status} {}\r\n", reason.unwrap_or("Unknown"));
    head.push_str(&fields(headers));
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await
}

/// The lines of these headers.
pub(crate) fn fields(headers: &[(String, String)]) -> String {
    headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}

/// Writes a piece of a body, as a chunk if `is_chunked`. An empty chunk would end the body, so an
/// empty piece is skipped.
pub(crate) async fn write_piece(
    stream: &mut dyn Stream,
    piece: &[u8],
    is_chunked: bool,
) -> io::Result<()> {
    match (piece, is_chunked) {
        ([], _) => return Ok(()),
        (_, false) => stream.write_all(piece).await?,
        (_, true) => {
            stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await?;
            stream.write_all(piece).await?;
            stream.write_all(b"\r\n").await?;
        }
    }
    stream.flush().await
}

/// Writes the end of a chunked body.
pub(crate) async fn write_last_chunk(stream: &mut dyn Stream) -> io::Result<()> {
    stream.write_all(b"0\r\n\r\n").await?;
    stream.flush().await
}

/// The current time as an HTTP date.
pub fn now() -> String {
    httpdate::fmt_http_date(std::time::SystemTime::now())
}
