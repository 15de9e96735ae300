//! An HTTP/1.1 client over TLS that does what a correct library never would: it stops in the
//! middle of a head or a body, reads a response while it is still sending, and reuses a connection
//! after an early response.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ProtocolVersion};

use crate::wait;

mod message;

pub use message::{Request, Response};

/// Bytes that are sent before the client checks for a response again.
const PIECE_BYTES: usize = 16 * 1024;

/// A connection to a server on loopback.
pub struct Connection {
    tcp: TcpStream,
    tls: ClientConnection,
    /// Received bytes that are not yet part of a returned response.
    received: Vec<u8>,
    ended: bool,
    /// True if the last request was a HEAD, whose response has no body.
    head_only: bool,
}

impl Connection {
    /// Connects and finishes the handshake.
    pub fn open(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Self> {
        Self::over(TcpStream::connect(address)?, address.ip(), config)
    }

    /// Performs the handshake over an existing connection to a server with this address.
    pub fn over(tcp: TcpStream, address: IpAddr, config: &Arc<ClientConfig>) -> io::Result<Self> {
        Self::over_within(wait::PATIENCE, tcp, address, config)
    }

    /// Like [`over`](Self::over), with another time limit for the handshake and for each response.
    pub fn over_within(
        patience: Duration,
        mut tcp: TcpStream,
        address: IpAddr,
        config: &Arc<ClientConfig>,
    ) -> io::Result<Self> {
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(patience))?;
        tcp.set_write_timeout(Some(patience))?;
        let name = ServerName::IpAddress(address.into());
        let mut tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp)?;
        }
        Ok(Self { tcp, tls, received: Vec::new(), ended: false, head_only: false })
    }

    /// The negotiated TLS version.
    pub fn tls_version(&self) -> Option<ProtocolVersion> {
        self.tls.protocol_version()
    }

    /// The protocol that the server chose by ALPN.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.tls.alpn_protocol()
    }

    /// Sends bytes unchanged.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(PIECE_BYTES) {
            self.tls.writer().write_all(piece)?;
            self.flush()?;
        }
        Ok(())
    }

    /// Sends a head.
    pub fn begin(&mut self, request: &Request) -> io::Result<()> {
        self.head_only = request.is_head();
        self.send(&request.bytes())
    }

    /// Sends bytes until a response begins to arrive. Returns how many were sent.
    pub fn send_until_answered(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sent = 0;
        for piece in bytes.chunks(PIECE_BYTES) {
            if self.is_answered()? {
                break;
            }
            self.send(piece)?;
            sent += piece.len();
        }
        Ok(sent)
    }

    /// Sends a request and reads its response, which may come before all of `body` is sent.
    /// `Content-Length` is added unless the request already frames the body.
    pub fn exchange(&mut self, request: &Request, body: &[u8]) -> io::Result<Response> {
        let framed = request.has("Content-Length") || request.has("Transfer-Encoding");
        if framed || (body.is_empty() && !request.is_post()) {
            self.begin(request)?;
        } else {
            self.begin(&request.clone().length(body.len()))?;
        }
        self.send_until_answered(body)?;
        self.response()
    }

    /// Reads the response to a request with this method whose head was sent in pieces.
    pub fn response_to(&mut self, method: &str) -> io::Result<Response> {
        self.head_only = method == "HEAD";
        self.response()
    }

    /// Reads the next response, which may be an interim one (1xx).
    pub fn response(&mut self) -> io::Result<Response> {
        let end = self.wait_for(|bytes| find(bytes, b"\r\n\r\n"))?;
        let head: Vec<u8> = self.received.drain(..end + 4).collect();
        let mut response = Response::parse(&String::from_utf8_lossy(&head))?;
        response.body = self.body(&response)?;
        Ok(response)
    }

    /// Sets the time limit for responses from now on.
    pub fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        self.tcp.set_read_timeout(Some(patience))
    }

    /// Waits at most `patience` for the server to close the connection. Returns whether it did.
    pub fn is_closed_within(&mut self, patience: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + patience;
        // A process that is halted meanwhile starts the wait of the read again.
        self.tcp.set_read_timeout(Some(patience.min(Duration::from_millis(50))))?;
        while !self.ended {
            match self.fill() {
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) =>
                {
                    if Instant::now() >= deadline {
                        return Ok(false);
                    }
                }
                // A reset ends the connection too.
                Err(_) => break,
                Ok(()) => {}
            }
        }
        Ok(true)
    }

    fn body(&mut self, response: &Response) -> io::Result<Vec<u8>> {
        if self.head_only || matches!(response.status, 100..=199 | 204 | 304) {
            return Ok(Vec::new());
        }
        if response.header("transfer-encoding") == Some("chunked") {
            return self.chunks();
        }
        if let Some(length) = response.header("content-length") {
            let length = length.parse().map_err(io::Error::other)?;
            self.wait_for(|bytes| (bytes.len() >= length).then_some(()))?;
            return Ok(self.received.drain(..length).collect());
        }
        while !self.ended {
            self.fill()?;
        }
        Ok(std::mem::take(&mut self.received))
    }

    /// Reads a chunked body. Trailers are dropped.
    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let length = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            if length == 0 {
                while !self.line()?.is_empty() {}
                return Ok(body);
            }
            self.wait_for(|bytes| (bytes.len() >= length + 2).then_some(()))?;
            body.extend(self.received.drain(..length));
            self.received.drain(..2);
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let end = self.wait_for(|bytes| find(bytes, b"\r\n"))?;
        let line: Vec<u8> = self.received.drain(..end + 2).collect();
        Ok(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    /// Receives until `found` returns something.
    fn wait_for<T>(&mut self, found: impl Fn(&[u8]) -> Option<T>) -> io::Result<T> {
        loop {
            if let Some(value) = found(&self.received) {
                return Ok(value);
            }
            if self.ended {
                let text = String::from_utf8_lossy(&self.received).into_owned();
                let reason = format!("the connection ended after {text:?}");
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
            }
            self.fill()?;
        }
    }

    /// Receives the bytes that have arrived, waiting if there are none.
    fn fill(&mut self) -> io::Result<()> {
        // A socket with a timeout returns EINTR after the machine was suspended; the kernel does
        // not restart such calls.
        let read = loop {
            match self.tls.read_tls(&mut self.tcp) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.ended |= read == 0;
        let processed = self.tls.process_new_packets();
        // A received alert may require an answer, but what the peer said matters more than whether
        // it still listens.
        self.flush().ok();
        processed.map_err(io::Error::other)?;
        let mut piece = [0; PIECE_BYTES];
        loop {
            match self.tls.reader().read(&mut piece) {
                Ok(0) => self.ended = true,
                Ok(length) => {
                    self.received.extend_from_slice(&piece[..length]);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.ended = true,
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }

    /// Waits until there is room to send or something has arrived. Returns whether a part of a
    /// response has arrived.
    fn is_answered(&mut self) -> io::Result<bool> {
        while self.received.is_empty() && !self.ended {
            let mut fds = [PollFd::new(&self.tcp, PollFlags::IN | PollFlags::OUT)];
            let patience = Timespec::try_from(wait::PATIENCE).map_err(io::Error::other)?;
            if poll(&mut fds, Some(&patience))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if !fds[0].revents().intersects(PollFlags::IN | PollFlags::HUP) {
                return Ok(false);
            }
            // Often only a TLS session ticket.
            self.fill()?;
        }
        Ok(true)
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.tcp)?;
        }
        Ok(())
    }
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}
