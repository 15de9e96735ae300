//! The service behind the daemon (NFC): frames, and the disk that they read.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::time::Duration;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::{CLASSIC, HostHabits, HostShared, expect, wrong};
use crate::disk::next_data;
use crate::fail::OrFail;
use crate::random::Random;
use crate::serving::lock;

/// Longest fragment of a reply.
const FRAGMENT: u64 = 64 << 10;

/// The name of the open disk.
const HANDLE: u64 = 0xffff_ffff_8000_2a50;

pub(super) fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().or_fail("a number"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().or_fail("a number"))
}

/// A frame from the client.
pub(super) struct Frame {
    kind: u32,
    operation: u32,
    payload: Vec<u8>,
    extra: Vec<u8>,
}

pub(super) async fn read_frames(
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
pub(super) struct HostLink<'a> {
    host: &'a HostShared,
    writer: Pin<Box<dyn AsyncWrite + Send + 'a>>,
    disk: Option<(File, u64)>,
    /// Bytes until the connection is cut.
    left: Option<usize>,
    habits: HostHabits,
    random: Random,
    pending: Vec<PendingFragment>,
    turn: usize,
}

impl<'a> HostLink<'a> {
    /// Creates the connection, which is cut after `left` bytes if that is given.
    pub(super) fn new(
        host: &'a HostShared,
        writer: impl AsyncWrite + Send + 'a,
        left: Option<usize>,
        habits: HostHabits,
    ) -> Self {
        let (writer, random) = (Box::pin(writer), Random::new(7));
        Self { host, writer, disk: None, left, habits, random, pending: Vec::new(), turn: 0 }
    }

    pub(super) async fn shut_down(&mut self) -> io::Result<()> {
        self.forget_reads();
        self.writer.shutdown().await
    }

    pub(super) async fn answer_frames(
        &mut self,
        frames: &mut mpsc::UnboundedReceiver<io::Result<Frame>>,
    ) -> io::Result<()> {
        loop {
            let next = if self.pending.is_empty() {
                let first = frames.recv().await;
                if self.habits.is_shuffling {
                    // More requests of the client may arrive in the meantime.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
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
        self.forget_reads();
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
        expected[12] = self.habits.wanted;
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
        let mut state = lock(&self.host.state);
        state.reads += 1;
        expect(state.reads <= 32, "more than 32 reads under way")
    }

    /// Ends the reads that are under way.
    fn forget_reads(&mut self) {
        let ends = self.pending.drain(..).map(|fragment| fragment.operation);
        let reads: HashSet<_> = ends.collect();
        lock(&self.host.state).reads -= reads.len();
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
        {
            let mut state = lock(&self.host.state);
            state.sent_bytes += to - from;
            let is_last = self.pending.iter().all(|other| other.operation != operation);
            state.reads -= usize::from(is_last);
        }
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
        let mut piece = [0; 4096];
        for index in 0..count {
            let place = start + index * chunk;
            let mut pieces = (next_data(file, place)..place + chunk).step_by(piece.len());
            if pieces.any(|at| file.read_exact_at(&mut piece, at).is_ok() && piece != [0; 4096]) {
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
    // Not byte by byte: tests send gigabytes of zeros.
    if bytes == vec![0; bytes.len()] {
        return packed;
    }
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
