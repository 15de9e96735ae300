//! A stand-in for an ESXi host that serves disks: its daemon (authd) and the service behind it
//! (NFC), strict about every byte of the client.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::digest::{self, Algorithm};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::TLS12;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::certs::Identity;
use crate::fail::OrFail;
use crate::random::Random;
use crate::serving::{ScriptedServer, lock};

const GREETING: &str = "220 VMware Authentication Daemon Version 1.10: SSL Required, ServerDaemonProtocol:SOAP, \
                        MKSDisplayProtocol:VNC , VMXARGS supported, NFCSSL supported/t";

/// Size of a classic message.
const CLASSIC: usize = 264;

/// Longest fragment of a reply.
const FRAGMENT: u64 = 64 << 10;

/// The name of the open disk.
const HANDLE: u64 = 0xffff_ffff_8000_2a50;

/// Makes what is sent in place of a reply, from the number of its operation.
pub type FrameMaker = fn(u32) -> Vec<u8>;

/// Settings of a host that a test can change.
#[derive(Debug, Clone)]
pub struct HostHabits {
    /// True for a host that was asked through a vCenter.
    pub is_managed: bool,
    /// True for ESXi from 7.0.3 on.
    pub has_sha256: bool,
    /// True if the fragments of all requests are sent in a random order.
    pub is_shuffling: bool,
    /// Compressions of the fragments, in turn. 0 sends them as they are.
    pub compressions: Vec<u32>,
    /// Numbers of bytes after which connections are cut, one for each connection.
    pub cuts: VecDeque<usize>,
    /// True if a connection is not cut, but falls silent.
    pub is_silent: bool,
    /// Number of tickets that are refused although they are right.
    pub refused_tickets: u32,
    /// Number of connections that are closed in the second handshake.
    pub hang_ups: u32,
    /// The announced thumbprint, if not that of the certificate.
    pub announced: Option<String>,
    /// The thumbprint in tickets, if not that of the certificate.
    pub thumbprint: Option<String>,
    /// The certificate of the second TLS session, if it is another.
    pub second: Option<Arc<ServerConfig>>,
    /// A kind of frame, and what is sent in place of the reply to it.
    pub instead: Option<(u32, FrameMaker)>,
    /// Bytes in the last sectors of which the disk is longer than its file.
    pub grown: u64,
}

/// State that the connections share.
struct HostState {
    habits: HostHabits,
    disks: HashMap<String, PathBuf>,
    tickets: Vec<String>,
    issued: u32,
    connections: u32,
    sent_bytes: u64,
    mistakes: Vec<String>,
}

/// The identity of a host, and its state.
pub(super) struct HostShared {
    tls: Arc<ServerConfig>,
    sha1: String,
    sha256: String,
    state: Mutex<HostState>,
}

/// A running host on a loopback port.
pub struct EsxiHost {
    server: ScriptedServer,
    shared: Arc<HostShared>,
}

impl EsxiHost {
    /// Starts a host with this certificate and without disks.
    pub fn start(identity: &Identity) -> Self {
        let certificate = CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes());
        let certificate = certificate.or_fail("a certificate");
        let thumbprint = |algorithm: &'static Algorithm| {
            let digest = digest::digest(algorithm, &certificate);
            let pairs: Vec<_> = digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
            pairs.join(":")
        };
        let shared = Arc::new(HostShared {
            // The version of today's hosts.
            tls: identity.server_config_of(&[&TLS12]).or_fail("TLS"),
            sha1: thumbprint(&digest::SHA1_FOR_LEGACY_USE_ONLY),
            sha256: thumbprint(&digest::SHA256),
            state: Mutex::new(HostState {
                habits: HostHabits {
                    is_managed: true,
                    has_sha256: true,
                    is_shuffling: false,
                    compressions: vec![3],
                    cuts: VecDeque::new(),
                    is_silent: false,
                    refused_tickets: 0,
                    hang_ups: 0,
                    announced: None,
                    thumbprint: None,
                    second: None,
                    instead: None,
                    grown: 0,
                },
                disks: HashMap::new(),
                tickets: Vec::new(),
                issued: 0,
                connections: 0,
                sent_bytes: 0,
                mistakes: Vec::new(),
            }),
        });
        let state = Arc::clone(&shared);
        let serve = move |tcp| {
            let state = Arc::clone(&state);
            async move {
                if let Err(error) = state.serve(tcp).await
                    && error.kind() == io::ErrorKind::InvalidInput
                {
                    lock(&state.state).mistakes.push(error.to_string());
                }
            }
        };
        Self { server: ScriptedServer::start(serve).or_fail("a host"), shared }
    }

    /// Serves the disk `raw` as the file `path`.
    pub fn add_disk(&self, path: &str, raw: &Path) {
        lock(&self.shared.state).disks.insert(path.to_owned(), raw.to_owned());
    }

    /// Changes the settings.
    pub fn habits(&self, change: impl FnOnce(&mut HostHabits)) {
        change(&mut lock(&self.shared.state).habits);
    }

    /// What clients did wrong.
    pub fn mistakes(&self) -> Vec<String> {
        lock(&self.shared.state).mistakes.clone()
    }

    /// Number of connections that reached the service, and bytes of disks that were sent, without
    /// compression.
    pub fn served(&self) -> (u32, u64) {
        let state = lock(&self.shared.state);
        (state.connections, state.sent_bytes)
    }

    /// The secrets of all tickets that were not used.
    pub fn secrets(&self) -> Vec<String> {
        lock(&self.shared.state).tickets.clone()
    }

    /// The SHA-1 thumbprint of the certificate.
    pub fn thumbprint(&self) -> String {
        self.shared.sha1.clone()
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.server.address().port()
    }

    pub(super) fn shared(&self) -> Arc<HostShared> {
        Arc::clone(&self.shared)
    }
}

impl HostShared {
    /// Returns a new ticket, as XML. `port` is that of the host.
    pub(super) fn ticket(&self, port: u16) -> String {
        let mut state = lock(&self.state);
        state.issued += 1;
        let secret = format!("52f0c1a2-secret-of-ticket-{}", state.issued);
        state.tickets.push(secret.clone());
        let thumbprint = state.habits.thumbprint.as_ref().unwrap_or(&self.sha1);
        let host = if state.habits.is_managed { "<host>127.0.0.1</host>" } else { "" };
        let service = if state.habits.is_managed { "vpxa-nfc" } else { "nfc" };
        format!(
            "<returnval>{host}<port>{port}</port><sslThumbprint>{thumbprint}</sslThumbprint><service>{service}</service>\
             <serviceVersion>1.1</serviceVersion><sessionId>{secret}</sessionId></returnval>"
        )
    }

    async fn serve(&self, mut tcp: TcpStream) -> io::Result<()> {
        tcp.set_nodelay(true)?;
        let habits = lock(&self.state).habits.clone();
        let sha256 = if habits.has_sha256 { ", SHA256 supported" } else { "" };
        let greeting = format!("{GREETING}{sha256}\r\n");
        tcp.write_all(greeting.as_bytes()).await?;
        let mut first = TlsAcceptor::from(Arc::clone(&self.tls)).accept(tcp).await?;
        let tag = self.answer_lines(&mut first, &habits, &greeting).await?;
        let (mut tcp, _) = first.into_inner();
        if habits.hang_ups > 0 {
            lock(&self.state).habits.hang_ups -= 1;
            tcp.read_exact(&mut [0; 16]).await?;
            return Ok(());
        }
        let second = habits.second.clone().unwrap_or_else(|| Arc::clone(&self.tls));
        let mut service = TlsAcceptor::from(second).accept(tcp).await?;
        begin(&mut service, &tag).await?;
        let cut = {
            let mut state = lock(&self.state);
            state.connections += 1;
            state.habits.cuts.pop_front()
        };
        let (reader, writer) = tokio::io::split(service);
        let (sender, mut frames) = mpsc::unbounded_channel();
        tokio::spawn(read_frames(reader, sender));
        let mut link = HostLink {
            host: self,
            writer: Box::pin(writer),
            disk: None,
            left: cut,
            habits,
            random: Random::new(7),
            pending: Vec::new(),
            turn: 0,
        };
        let answered = link.answer_frames(&mut frames).await;
        // A reset would drop what the client has received but not read yet.
        link.writer.shutdown().await?;
        while frames.recv().await.is_some() {}
        answered
    }

    /// Answers the lines of a client, and returns the tag.
    async fn answer_lines(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        habits: &HostHabits,
        greeting: &str,
    ) -> io::Result<String> {
        let secret = line(stream, "SESSION ").await?;
        let is_known = {
            let mut state = lock(&self.state);
            let place = state.tickets.iter().position(|ticket| *ticket == secret);
            let is_refused = state.habits.refused_tickets > 0;
            state.habits.refused_tickets = state.habits.refused_tickets.saturating_sub(1);
            place.map(|place| state.tickets.remove(place)).is_some() && !is_refused
        };
        expect(line(stream, "BANNER").await? == " ", "the blank behind BANNER")?;
        stream.write_all(greeting.as_bytes()).await?;
        let tag = line(stream, "THUMBPRINT_SHA2 ").await?;
        expect(!tag.is_empty() && !tag.contains([' ', ':']), &tag)?;
        if !is_known {
            stream.write_all(b"530 Please login with USER and PASS.\r\n").await?;
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let announced = habits.announced.as_ref().unwrap_or(&self.sha256);
        stream.write_all(format!("200 {announced}\r\n").as_bytes()).await?;
        let service = line(stream, "PROXY ").await?;
        let expected = if habits.is_managed { "vpxa-nfcssl" } else { "nfcssl" };
        expect(service == expected, &service)?;
        stream.write_all(b"200 Connect ha-nfcssl\r\n").await?;
        Ok(tag)
    }
}

/// Reads a line that begins with `word`, byte by byte, and returns the rest of it.
async fn line(stream: &mut (impl AsyncRead + Unpin), word: &str) -> io::Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(stream.read_u8().await?);
        expect(line.len() < 1000, "a long line")?;
    }
    let line = String::from_utf8_lossy(&line[..line.len() - 2]).into_owned();
    let rest = line.strip_prefix(word);
    rest.map(str::to_owned).ok_or_else(|| wrong(&format!("{line}, expected {word}")))
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

fn expect(is_right: bool, what: &str) -> io::Result<()> {
    if is_right { Ok(()) } else { Err(wrong(what)) }
}

fn classic(kind: u32, fields: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; CLASSIC];
    for (at, field) in fields.iter().chain(&[(0, &kind.to_le_bytes()[..])]) {
        bytes[*at..*at + field.len()].copy_from_slice(field);
    }
    bytes
}

/// The messages before the frames.
async fn begin(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), tag: &str) -> io::Result<()> {
    let one = 1u32.to_le_bytes();
    let version = 11u32.to_le_bytes();
    expect_bytes(stream, &classic(43, &[(4, tag.as_bytes())])).await?;
    expect_bytes(stream, &classic(33, &[])).await?;
    expect_bytes(stream, &classic(51, &[(4, &version)])).await?;
    stream.write_all(&classic(36, &[(16, &one)])).await?;
    stream.write_all(&classic(51, &[(4, &version)])).await?;
    let mut names = vec![0; CLASSIC];
    stream.read_exact(&mut names).await?;
    let lengths = [4, 8].map(|at| number(&names, at));
    let fields = lengths.map(u32::to_le_bytes);
    expect(names == classic(54, &[(4, &fields[0]), (8, &fields[1])]), "message 54")?;
    let mut text = vec![0; usize::try_from(lengths[0] + lengths[1]).or_fail("names")];
    stream.read_exact(&mut text).await?;
    expect(text.is_ascii() && text.ends_with(b"nbdmode"), "the names of the client")?;
    expect_bytes(stream, &classic(55, &[(4, &3u32.to_le_bytes())])).await?;
    expect_bytes(stream, &classic(52, &[])).await?;
    stream.write_all(&classic(52, &[])).await
}

async fn expect_bytes(stream: &mut (impl AsyncRead + Unpin), bytes: &[u8]) -> io::Result<()> {
    let mut found = vec![0; bytes.len()];
    stream.read_exact(&mut found).await?;
    expect(found == bytes, &format!("{found:02x?}"))
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().or_fail("a number"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().or_fail("a number"))
}

/// A frame from the client.
struct Frame {
    kind: u32,
    operation: u32,
    payload: Vec<u8>,
    extra: Vec<u8>,
}

async fn read_frames(
    mut reader: impl AsyncRead + Unpin,
    sender: mpsc::UnboundedSender<io::Result<Frame>>,
) {
    for operation in 0.. {
        let frame = read_frame(&mut reader, operation).await;
        let is_last = frame.is_err();
        if sender.send(frame).is_err() || is_last {
            return;
        }
    }
}

async fn read_frame(reader: &mut (impl AsyncRead + Unpin), operation: u32) -> io::Result<Frame> {
    let mut header = [0; 16];
    reader.read_exact(&mut header).await?;
    if number(&header, 0) == 4 {
        // The end of the session, whose rest is zeros.
        let mut rest = [0; CLASSIC - 16];
        reader.read_exact(&mut rest).await?;
        expect(header[4..].iter().chain(&rest).all(|byte| *byte == 0), "message 4")?;
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let [magic, kind, size, found] = [0, 4, 8, 12].map(|at| number(&header, at));
    expect(magic == 0xa100_da7a && found == operation, &format!("{header:02x?}"))?;
    let sizes = [(2, 16), (3, 4), (4, 60), (5, 8), (7, 44), (9, 12), (13, 48), (22, 4)];
    expect(sizes.contains(&(kind, size)), &format!("type {kind} of {size} bytes"))?;
    let mut payload = vec![0; usize::try_from(size).or_fail("a size")];
    reader.read_exact(&mut payload).await?;
    let extra = if kind == 4 { number(&payload, 0) } else { 0 };
    expect(extra < 5000, "a long path")?;
    let mut extra = vec![0; usize::try_from(extra).or_fail("a path")];
    reader.read_exact(&mut extra).await?;
    Ok(Frame { kind, operation, payload, extra })
}

/// Encodes a frame of the host.
pub fn frame(kind: u32, operation: u32, payload: &[u8], extra: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).or_fail("a payload");
    let mut bytes = [0xa100_da7a, kind, size, operation].map(u32::to_le_bytes).concat();
    bytes.extend(payload);
    bytes.extend(extra);
    bytes
}

/// A fragment that is to be sent.
struct PendingFragment {
    operation: u32,
    start: u64,
    length: u64,
    from: u64,
    to: u64,
}

/// The connection of the service.
struct HostLink<'a> {
    host: &'a HostShared,
    writer: std::pin::Pin<Box<dyn AsyncWrite + Send + 'a>>,
    disk: Option<(File, u64)>,
    /// Bytes until the connection is cut.
    left: Option<usize>,
    habits: HostHabits,
    random: Random,
    pending: Vec<PendingFragment>,
    turn: usize,
}

impl HostLink<'_> {
    async fn answer_frames(
        &mut self,
        frames: &mut mpsc::UnboundedReceiver<io::Result<Frame>>,
    ) -> io::Result<()> {
        loop {
            let next = if self.pending.is_empty() {
                let first = frames.recv().await;
                // More requests of the client may arrive in the meantime.
                tokio::time::sleep(Duration::from_millis(1)).await;
                first
            } else {
                frames.try_recv().ok()
            };
            match next {
                Some(frame) => self.answer(frame?).await?,
                None if self.pending.is_empty() => return Ok(()),
                None => self.send_fragment().await?,
            }
        }
    }

    /// Sends bytes until the connection is to be cut.
    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let allowed = self.left.map_or(bytes.len(), |left| left.min(bytes.len()));
        self.writer.write_all(&bytes[..allowed]).await?;
        self.writer.flush().await?;
        self.left = self.left.map(|left| left - allowed);
        if self.left != Some(0) {
            return Ok(());
        }
        if self.habits.is_silent {
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        Err(io::ErrorKind::ConnectionAborted.into())
    }

    async fn answer(&mut self, frame: Frame) -> io::Result<()> {
        let Frame { kind, operation, payload, extra } = frame;
        if let Some((_, instead)) = self.habits.instead.filter(|(wrong, _)| *wrong == kind) {
            let bytes = instead(operation);
            return self.send(&bytes).await;
        }
        let reply = |payload: &[u8]| self::frame(kind, operation, payload, &[]);
        let bytes = match kind {
            2 => {
                expect(payload == [0; 16], "buffers")?;
                reply(&[0; 16])
            }
            9 => {
                expect(payload == [0; 12], "socket options")?;
                reply(&[0, 0, 4, 0, 0, 0, 4, 0, 1, 0, 0, 0])
            }
            22 => {
                expect(payload == [1, 0, 0, 0], "the pool")?;
                reply(&[0; 4])
            }
            4 => self.open(operation, &payload, &extra)?,
            7 => return self.queue_read(operation, &payload),
            13 => self.used(operation, &payload)?,
            5 => {
                expect(long(&payload, 0) == HANDLE, "the handle")?;
                reply(&[0; 8])
            }
            _ => reply(&[0; 4]),
        };
        self.send(&bytes).await
    }

    fn open(&mut self, operation: u32, payload: &[u8], path: &[u8]) -> io::Result<Vec<u8>> {
        let mut expected = [0; 60];
        expected[..4].copy_from_slice(&u32::try_from(path.len()).or_fail("a path").to_le_bytes());
        expected[16] = 2;
        expected[20] = 0x1e;
        expect(payload == expected, &format!("an open {payload:02x?}"))?;
        let path = String::from_utf8_lossy(path);
        let Some(raw) = lock(&self.host.state).disks.get(&*path).cloned() else {
            let text = b"NfcAioProcessOpenFileMsg: permission check failed";
            let mut error = [0; 16];
            error[0] = 11;
            error[12] = u8::try_from(text.len()).or_fail("a text");
            let refused = frame(1, operation, &error, text);
            return Ok([refused, frame(4, operation, &[0; 60], &[])].concat());
        };
        let file = File::open(&raw).or_fail(raw.display());
        let bytes = file.metadata()?.len() + self.habits.grown;
        self.disk = Some((file, bytes));
        let mut reply = [0; 60];
        reply[8..16].copy_from_slice(&HANDLE.to_le_bytes());
        reply[16] = 2;
        reply[20] = 0x1e;
        reply[28..36].copy_from_slice(&bytes.to_le_bytes());
        reply[36..40].copy_from_slice(&512u32.to_le_bytes());
        Ok(frame(4, operation, &reply, &[]))
    }

    fn disk(&self) -> io::Result<&(File, u64)> {
        self.disk.as_ref().ok_or_else(|| wrong("no disk is open"))
    }

    fn queue_read(&mut self, operation: u32, payload: &[u8]) -> io::Result<()> {
        let (start, length) = (long(payload, 16), long(payload, 24));
        let mut expected = [0; 44];
        expected[..8].copy_from_slice(&HANDLE.to_le_bytes());
        expected[8] = 1;
        expected[12] = 3;
        expected[16..32].copy_from_slice(&payload[16..32]);
        expected[32..36].copy_from_slice(&payload[24..28]);
        expected[36..40].copy_from_slice(&payload[24..28]);
        let end = start + length;
        let is_right = payload == expected
            && (1..=1 << 20).contains(&length)
            && start.is_multiple_of(512)
            && length.is_multiple_of(512)
            && end <= self.disk()?.1;
        expect(is_right, &format!("a read {payload:02x?}"))?;
        let mut from = start;
        while from < end {
            let to = end.min(from + FRAGMENT);
            self.pending.push(PendingFragment { operation, start, length, from, to });
            from = to;
        }
        let reads: std::collections::HashSet<_> =
            self.pending.iter().map(|fragment| fragment.operation).collect();
        expect(reads.len() <= 32, "more than 32 reads under way")
    }

    async fn send_fragment(&mut self) -> io::Result<()> {
        let index = if self.habits.is_shuffling {
            usize::try_from(self.random.below(self.pending.len() as u64)).or_fail("an index")
        } else {
            0
        };
        let PendingFragment { operation, start, length, from, to } = self.pending.remove(index);
        let mut bytes = vec![0; usize::try_from(to - from).or_fail("a fragment")];
        self.disk()?.0.read_exact_at(&mut bytes, from)?;
        let compression = self.habits.compressions[self.turn % self.habits.compressions.len()];
        self.turn += 1;
        let packed = match compression {
            1 => deflate(&bytes),
            3 => skip_zeros(&bytes),
            _ => bytes.clone(),
        };
        let (compression, data) =
            if packed.len() < bytes.len() { (compression, packed) } else { (0, bytes) };
        let mut payload = [0; 44];
        payload[8] = 1;
        payload[12..16].copy_from_slice(&compression.to_le_bytes());
        payload[16..24].copy_from_slice(&start.to_le_bytes());
        let numbers = [(24, length), (28, from - start), (32, to - from), (36, data.len() as u64)];
        for (at, number) in numbers {
            let number = u32::try_from(number).or_fail("a number");
            payload[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        lock(&self.host.state).sent_bytes += to - from;
        self.send(&frame(7, operation, &payload, &data)).await
    }

    fn used(&self, operation: u32, payload: &[u8]) -> io::Result<Vec<u8>> {
        let (file, bytes) = self.disk()?;
        let [chunk, start, count] = [16, 24, 32].map(|at| long(payload, at));
        let is_right = long(payload, 0) == HANDLE
            && chunk >= 64 << 10
            && start.is_multiple_of(chunk)
            && (1..=512 * 1024).contains(&count)
            && start + count * chunk <= *bytes
            && self.pending.is_empty();
        expect(is_right, &format!("used blocks {payload:02x?}"))?;
        let mut bitmap = vec![0u8; usize::try_from(count.div_ceil(32) * 4).or_fail("a bitmap")];
        let mut content = vec![0; usize::try_from(chunk).or_fail("a chunk")];
        for index in 0..count {
            file.read_exact_at(&mut content, start + index * chunk)?;
            if content.iter().any(|byte| *byte != 0) {
                bitmap[usize::try_from(index / 8).or_fail("a byte")] |= 1 << (index % 8);
            }
        }
        let mut reply = [0; 48];
        reply[32..40].copy_from_slice(&count.to_le_bytes());
        Ok(frame(13, operation, &reply, &bitmap))
    }
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
    io::Write::write_all(&mut zlib, bytes).or_fail("zlib");
    zlib.finish().or_fail("zlib")
}

/// The runs of sectors that are not zero.
fn skip_zeros(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).or_fail("a fragment");
    let mut packed = [length, 0].map(u32::to_le_bytes).concat();
    for (index, sector) in bytes.chunks(512).enumerate() {
        if sector.iter().any(|byte| *byte != 0) {
            let place = u32::try_from(index * 512).or_fail("an offset");
            let length = u32::try_from(sector.len()).or_fail("a length");
            packed.extend([place, length].map(u32::to_le_bytes).concat());
            packed.extend(sector);
        }
    }
    packed
}
