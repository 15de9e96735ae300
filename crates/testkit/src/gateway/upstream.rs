//! The gateway's client of the real server, which opens one connection for each request.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::wire::{Request, Stream};

/// Longest line of a head.
const LINE_LIMIT_BYTES: u64 = 64 * 1024;

/// Bytes of a body that are read at a time.
const READ_BYTES: usize = 64 * 1024;

/// The head of a response, and its body as it arrives.
pub(super) struct Answer {
    pub(super) status: u16,
    /// In the server's order, without those about the connection.
    pub(super) headers: Vec<(String, String)>,
    pub(super) framing: Framing,
    stream: BufReader<TcpStream>,
    /// Bytes left of the body, or of the current chunk.
    left: u64,
    ended: bool,
}

/// How the end of a body is found (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is no body, whatever the head says.
    NoBody,
    Length(u64),
    Chunked,
    UntilClose,
}

/// Sends `request`, reading its body from `client`, and reads the head of the response.
pub(super) async fn ask(
    upstream: SocketAddr,
    request: &Request,
    client: &mut dyn Stream,
) -> io::Result<Answer> {
    let mut server = TcpStream::connect(upstream).await?;
    server.set_nodelay(true)?;
    let mut head = format!("{} {} HTTP/1.1\r\n", request.method, request.target);
    for (name, value) in request.headers.iter().filter(|(name, _)| !is_of_connection(name)) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("connection: close\r\n\r\n");
    server.write_all(head.as_bytes()).await?;
    if request.header("transfer-encoding").is_some() {
        return Err(io::Error::other("requests with a chunked body are not passed on"));
    }
    if let Some(length) = request.header("content-length") {
        let length = length.parse().map_err(io::Error::other)?;
        tokio::io::copy(&mut client.take(length), &mut server).await?;
    }
    Answer::read(server, request.method == "HEAD").await
}

fn is_of_connection(name: &str) -> bool {
    name.eq_ignore_ascii_case("connection") || name.eq_ignore_ascii_case("keep-alive")
}

impl Answer {
    async fn read(server: TcpStream, to_head: bool) -> io::Result<Self> {
        let mut stream = BufReader::with_capacity(READ_BYTES, server);
        let status_line = line(&mut stream).await?;
        let status = status_line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status =
            status.ok_or_else(|| io::Error::other(format!("no status in {status_line:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = line(&mut stream).await?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            if !is_of_connection(name) {
                headers.push((name.to_owned(), value.trim().to_owned()));
            }
        }
        let framing = match status {
            _ if to_head => Framing::NoBody,
            204 | 304 => Framing::NoBody,
            _ => framing(&headers),
        };
        Ok(Self {
            status,
            headers,
            framing,
            stream,
            left: if let Framing::Length(length) = framing { length } else { 0 },
            ended: framing == Framing::NoBody,
        })
    }

    /// Reads the next bytes of the body; 0 at its end. Returns an error if the server ends the
    /// body early.
    pub(super) async fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        if self.framing == Framing::Chunked && self.left == 0 {
            self.left = self.next_chunk().await?;
        }
        let is_bounded = self.framing != Framing::UntilClose;
        if is_bounded && self.left == 0 {
            self.ended = true;
            return Ok(0);
        }
        let limit = if is_bounded {
            usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()))
        } else {
            buffer.len()
        };
        let read = self.stream.read(&mut buffer[..limit]).await?;
        if is_bounded && read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left = self.left.saturating_sub(read as u64);
        if self.framing == Framing::Chunked && self.left == 0 {
            line(&mut self.stream).await?;
        }
        Ok(read)
    }

    /// Reads the length of the next chunk: 0 for the last one, whose trailers are then read too.
    async fn next_chunk(&mut self) -> io::Result<u64> {
        let size = line(&mut self.stream).await?;
        let digits = size.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(digits, 16).map_err(io::Error::other)?;
        if size == 0 {
            while !line(&mut self.stream).await?.is_empty() {}
        }
        Ok(size)
    }
}

fn framing(headers: &[(String, String)]) -> Framing {
    let value = |name: &str| {
        headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    };
    match (value("transfer-encoding"), value("content-length")) {
        (Some(_), _) => Framing::Chunked,
        (None, Some(length)) => length.parse().map_or(Framing::UntilClose, Framing::Length),
        (None, None) => Framing::UntilClose,
    }
}

/// Reads one line and returns it without its line end.
async fn line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut bytes = Vec::new();
    stream.take(LINE_LIMIT_BYTES).read_until(b'\n', &mut bytes).await?;
    if bytes.pop() != Some(b'\n') {
        return Err(io::Error::other("the server closed the connection within a head"));
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.trim_end_matches('\r').to_owned())
}
