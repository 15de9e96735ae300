//! The begin and the end of a session with a host: what both sides speak, and the disk to open.

use fetch::retry::AttemptError;
use stream::error::SourceErrorKind;
use tokio::io::BufReader;

use super::ticket::PRIVILEGES;
use super::wire::{self, ClassicMessage, FrameHeader, HostError, OpenedFile};
use crate::blocks::ProtocolViolation;
use crate::blocks::transport::{Stream, read_bytes, write_bytes};

/// Size of the buffer for headers. Data is read directly, not through this buffer.
const READ_AHEAD_BYTES: usize = 4 << 10;

/// Oldest version of a host that can send frames.
const MIN_HOST_VERSION: u32 = 3;

/// The name of the client, for the host's log, and of what it does, as public clients call it.
const NAMES: [&str; 2] = ["cdi-importer", "nbdmode"];

/// The version that is announced, and a second number. Not confirmed: what they mean.
const VERSION: [u32; 2] = [11, 0];

/// Bits of message 55: interruption, and change of the host. Not confirmed: whether either may be
/// left out.
const FEATURE_BITS: u32 = 3;

/// Payload of the request for a session. Zeros leave size and number of the buffers to the host.
/// Not confirmed: whether ESXi before 7.0.3 accepts others.
const SESSION: [u8; 16] = [0; 16];

/// Payload of the request for a pool of resources, as public clients send it.
const POOL: [u8; 4] = [1, 0, 0, 0];

/// A connection to the service of a host.
pub(super) struct NfcLink {
    pub(super) stream: BufReader<Stream>,
    next_operation: u32,
}

impl NfcLink {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream: BufReader::with_capacity(READ_AHEAD_BYTES, stream), next_operation: 0 }
    }

    /// Begins the session. `tag` is the word that authd was told.
    ///
    /// Each message is written at once: a host reads one message from each TLS record.
    pub(super) async fn begin(&mut self, tag: &str) -> Result<(), AttemptError> {
        let [version, other] = VERSION;
        for message in [
            ClassicMessage::new(wire::CLIENT_RANDOM).with_bytes(4, tag.as_bytes()),
            ClassicMessage::new(wire::FILE_COPY),
            ClassicMessage::new(wire::VERSION).with_numbers(version, other),
        ] {
            write_bytes(&mut self.stream, &message.0).await?;
        }
        // Not confirmed: what the number at 16 says.
        self.read_classic(wire::FILEOP_STATUS).await?;
        let version = self.read_classic(wire::VERSION).await?.number_at(4);
        if version < MIN_HOST_VERSION {
            let message = format!(
                "the host speaks version {version} of NFC, and version {MIN_HOST_VERSION} is needed: use VMware's library (--transport vddk)"
            );
            return Err(AttemptError::new_final(SourceErrorKind::Invalid, message));
        }
        tracing::debug!("the host speaks version {version} of NFC");
        write_bytes(&mut self.stream, &wire::encode_names(NAMES)).await?;
        let features = ClassicMessage::new(wire::FEATURES).with_numbers(FEATURE_BITS, 0);
        write_bytes(&mut self.stream, &features.0).await?;
        write_bytes(&mut self.stream, &ClassicMessage::new(wire::BEGIN_AIO).0).await?;
        self.read_classic(wire::BEGIN_AIO).await?;
        self.call(wire::OPEN_SESSION, &SESSION).await?;
        self.call(wire::SOCKET_OPTIONS, &[0; 12]).await?;
        self.call(wire::RESOURCE_POOL, &POOL).await
    }

    /// Opens the disk in the file `path`, with its parents, read-only.
    pub(super) async fn open_file(&mut self, path: &str) -> Result<OpenedFile, AttemptError> {
        let payload = wire::open_payload(path);
        let reply = match self.try_call(wire::OPEN_FILE, &payload, path.as_bytes()).await? {
            Ok(reply) => OpenedFile::parse(&reply)?,
            Err(error) => Err(error),
        };
        let file = reply.map_err(|error| open_error(path, &error))?;
        tracing::debug!(?file, "the host opens {path}");
        Ok(file)
    }

    /// Asks which of `count` chunks from `start` on are used: a bitmap, lowest bit first.
    pub(super) async fn list_chunks(
        &mut self,
        handle: u64,
        chunk: u64,
        start: u64,
        count: u64,
    ) -> Result<Result<Vec<u8>, HostError>, AttemptError> {
        let payload = wire::used_payload(handle, chunk, start, count);
        let reply = match self.try_call(wire::USED_BLOCKS, &payload, &[]).await? {
            Ok(reply) => reply,
            Err(error) => return Ok(Err(error)),
        };
        let mut bitmap = vec![0; wire::parse_used(&reply, count)?];
        read_bytes(&mut self.stream, &mut bitmap).await?;
        Ok(Ok(bitmap))
    }

    /// Closes the disk and the session.
    pub(super) async fn end(&mut self, handle: u64) -> Result<(), AttemptError> {
        self.call(wire::CLOSE_FILE, &handle.to_le_bytes()).await?;
        self.call(wire::CLOSE_SESSION, &[0; 4]).await?;
        let end = ClassicMessage::new(wire::SESSION_COMPLETE);
        write_bytes(&mut self.stream, &end.0).await
    }

    /// Sends a frame, and returns the number of its operation.
    pub(super) async fn send_frame(
        &mut self,
        kind: u32,
        payload: &[u8],
        extra: &[u8],
    ) -> Result<u32, AttemptError> {
        let operation = self.next_operation;
        self.next_operation = operation.wrapping_add(1);
        let frame = wire::encode_frame(kind, operation, payload, extra);
        write_bytes(&mut self.stream, &frame).await?;
        Ok(operation)
    }

    /// Sends a request whose reply has as many bytes, which say nothing.
    async fn call<const N: usize>(
        &mut self,
        kind: u32,
        payload: &[u8; N],
    ) -> Result<(), AttemptError> {
        let reply: Result<[u8; N], _> = self.try_call(kind, payload, &[]).await?;
        reply.map(drop).map_err(|error| {
            let message = format!("the host refuses request {kind} with {error}");
            AttemptError::new_transient(SourceErrorKind::Io, message)
        })
    }

    /// Sends a request, and returns the payload of its reply, or the error of the host, which a
    /// reply may follow.
    async fn try_call<const N: usize>(
        &mut self,
        kind: u32,
        payload: &[u8],
        extra: &[u8],
    ) -> Result<Result<[u8; N], HostError>, AttemptError> {
        let operation = self.send_frame(kind, payload, extra).await?;
        let header = self.read_header().await?;
        if header.operation != operation {
            let found = header.operation;
            return Err(ProtocolViolation(format!("a reply to operation {found}")).into());
        }
        if header.kind == wire::ERROR {
            return Ok(Err(self.read_error(header).await?));
        }
        if header.kind != kind {
            return Err(unknown_error(header.kind));
        }
        Ok(Ok(self.read_payload(header).await?))
    }

    pub(super) async fn read_header(&mut self) -> Result<FrameHeader, AttemptError> {
        let mut bytes = [0; FrameHeader::BYTES];
        read_bytes(&mut self.stream, &mut bytes).await?;
        Ok(FrameHeader::parse(&bytes)?)
    }

    /// Reads the payload of a frame, which must have `N` bytes.
    pub(super) async fn read_payload<const N: usize>(
        &mut self,
        header: FrameHeader,
    ) -> Result<[u8; N], AttemptError> {
        header.check_size(N)?;
        let mut payload = [0; N];
        read_bytes(&mut self.stream, &mut payload).await?;
        Ok(payload)
    }

    /// Reads the rest of an error.
    pub(super) async fn read_error(
        &mut self,
        header: FrameHeader,
    ) -> Result<HostError, AttemptError> {
        let payload = self.read_payload(header).await?;
        let (code, length) = HostError::parse(&payload)?;
        let mut text = vec![0; length];
        read_bytes(&mut self.stream, &mut text).await?;
        Ok(HostError::from_text(code, &text))
    }

    /// Reads message number `expected` of the first phase. Any other one refuses the session; a
    /// new ticket may help.
    async fn read_classic(&mut self, expected: u32) -> Result<ClassicMessage, AttemptError> {
        let mut message = ClassicMessage::new(0);
        read_bytes(&mut self.stream, &mut message.0).await?;
        let found = message.number_at(0);
        if found == expected {
            return Ok(message);
        }
        let message = match found {
            wire::CLASSIC_ERROR => {
                let [kind, code] = [4, 8].map(|at| message.number_at(at));
                format!("the host ends the session with error {code} of type {kind}")
            }
            _ => format!("the host ends the session: message {found} instead of {expected}"),
        };
        Err(AttemptError::new_transient(SourceErrorKind::Io, message))
    }
}

/// Creates the error for a frame of an unknown kind. It may announce that the disk moves to
/// another host, which a new ticket names.
pub(super) fn unknown_error(kind: u32) -> AttemptError {
    let message = format!("the host sends an unexpected frame of type {kind}");
    AttemptError::new_transient(SourceErrorKind::Io, message)
}

/// Code of the error for a file that the ticket does not allow. Others are not known.
const NOT_ALLOWED: u64 = 11;

fn open_error(path: &str, error: &HostError) -> AttemptError {
    let has = |part: &str| error.text.contains(part);
    let refused = format!("the host does not open {path}: {error}");
    if has("Failed to lock") {
        let message = format!("{refused}: another program holds it, for example a download");
        return AttemptError::new_transient(SourceErrorKind::Io, message);
    }
    let remedy = if has("multiwriter mode") {
        ": a running machine writes to it: take a snapshot, and name it with --checkpoint"
    } else if error.code == NOT_ALLOWED {
        &format!(": it is not a file of this machine, or {PRIVILEGES}")
    } else {
        ""
    };
    AttemptError::new_final(SourceErrorKind::Invalid, format!("{refused}{remedy}"))
}
