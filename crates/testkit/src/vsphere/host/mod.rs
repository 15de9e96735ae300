//! A stand-in for an ESXi host that serves disks: its daemon (authd) and the service behind it
//! (NFC), strict about every byte of the client.

mod link;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use aws_lc_rs::digest::{self, Algorithm};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::TLS12;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_util::either::Either;

pub use self::link::frame;
use self::link::{HostLink, number, read_frames};
use crate::certs::Identity;
use crate::fail::OrFail;
use crate::serving::{ScriptedServer, lock};

const GREETING: &str = "220 VMware Authentication Daemon Version 1.10: SSL Required, ServerDaemonProtocol:SOAP, \
                        MKSDisplayProtocol:VNC , VMXARGS supported, NFCSSL supported/t";

/// Size of a classic message.
const CLASSIC: usize = 264;

/// Makes what is sent in place of a reply, from the number of its operation.
pub type FrameMaker = fn(u32) -> Vec<u8>;

/// Settings of a host that a test can change.
#[derive(Debug, Clone)]
pub struct HostHabits {
    /// True for a host that was asked through a vCenter.
    pub is_managed: bool,
    /// True for ESXi from 7.0.3 on.
    pub has_sha256: bool,
    /// True if clients must ask for the service without TLS.
    pub is_clear: bool,
    /// The compression that clients must ask for.
    pub wanted: u8,
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
    /// Number of connections after which all tickets are refused.
    pub most_connections: u32,
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
    /// Number of reads under way, on all connections.
    reads: usize,
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
                    is_clear: false,
                    wanted: 3,
                    is_shuffling: false,
                    compressions: vec![3],
                    cuts: VecDeque::new(),
                    is_silent: false,
                    refused_tickets: 0,
                    most_connections: u32::MAX,
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
                reads: 0,
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
        let mut service = match habits.is_clear {
            true => Either::Left(tcp),
            false => Either::Right(TlsAcceptor::from(second).accept(tcp).await?),
        };
        begin(&mut service, &tag).await?;
        let cut = {
            let mut state = lock(&self.state);
            state.connections += 1;
            state.habits.cuts.pop_front()
        };
        let (reader, writer) = tokio::io::split(service);
        let (sender, mut frames) = mpsc::unbounded_channel();
        tokio::spawn(read_frames(reader, sender));
        let mut link = HostLink::new(self, writer, cut, habits);
        let answered = link.answer_frames(&mut frames).await;
        // A reset would drop what the client has received but not read yet.
        link.shut_down().await?;
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
            let is_refused = state.habits.refused_tickets > 0
                || state.connections >= state.habits.most_connections;
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
        let suffix = if habits.is_clear { "" } else { "ssl" };
        let expected = if habits.is_managed { "vpxa-nfc" } else { "nfc" };
        expect(service == format!("{expected}{suffix}"), &service)?;
        stream.write_all(format!("200 Connect ha-nfc{suffix}\r\n").as_bytes()).await?;
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
