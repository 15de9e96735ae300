//! Sessions of public clients, byte by byte, and replies in any order.

use std::io::Cursor;
use std::ops::Range;
use std::time::Duration;

use fetch::retry::AttemptError;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, join, sink};

use super::authd::{check_greeting, read_line, request_service};
use super::connection::NfcConnection;
use super::fragment;
use super::link::NfcLink;
use super::ticket::NfcTicket;
use super::wire::{self, FrameHeader, OpenedFile};
use crate::blocks::{BlockConnection, ReplyEvent};

const LIMIT: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;
const MAGIC: u32 = 0xa100_da7a;

/// A message, and whether the client sends it.
type Recorded = (bool, Vec<u8>);

/// Reads a recorded session: the lines of authd, and what follows.
fn recorded(text: &str) -> (Vec<Recorded>, Vec<Recorded>) {
    let (mut lines, mut frames) = (Vec::new(), Vec::new());
    let mut is_service = false;
    for line in text.lines() {
        is_service |= line.starts_with("# classic 43");
        if let Some((side @ ("C" | "S"), hex)) = line.split_once(' ') {
            let bytes: Vec<u8> = hex.split_whitespace().flat_map(repeated).collect();
            let is_client = side == "C";
            if is_service {
                frames.push((is_client, as_ours(is_client, bytes)));
            } else {
                lines.push((is_client, bytes));
            }
        }
    }
    (lines, frames)
}

/// Replaces what clients may choose in a message by what ours chooses: names, versions, buffers,
/// compression, and the sizes of the payloads at the end.
fn as_ours(is_client: bool, mut bytes: Vec<u8>) -> Vec<u8> {
    let number = |at: usize| {
        bytes.get(at..at + 4).map_or(0, |four| u32::from_le_bytes(four.try_into().unwrap()))
    };
    match (is_client, number(0), number(4)) {
        (true, wire::CLIENT_NAMES, _) => bytes[4..12].copy_from_slice(&[12, 0, 0, 0, 7, 0, 0, 0]),
        (true, wire::VERSION, _) => bytes[4..12].copy_from_slice(&[11, 0, 0, 0, 0, 0, 0, 0]),
        (true, MAGIC, wire::OPEN_SESSION) => bytes[16..].fill(0),
        (true, MAGIC, wire::READ) => bytes[28] = 3,
        (_, MAGIC, wire::CLOSE_FILE) => shorten(&mut bytes, 8),
        (_, MAGIC, wire::CLOSE_SESSION) => shorten(&mut bytes, 4),
        _ if is_client && (bytes == b"vddk" || bytes == b"testing") => {
            bytes = b"cdi-importer".to_vec()
        }
        _ => {}
    }
    bytes
}

fn shorten(frame: &mut Vec<u8>, payload: u8) {
    frame[8] = payload;
    frame.truncate(16 + usize::from(payload));
}

/// `0aff`, or `00*12`: the bytes `0a` and `ff`; twelve zeros. In `c0ff*3`, only `ff` is repeated.
fn repeated(word: &str) -> Vec<u8> {
    let (hex, times) = word.split_once('*').unwrap_or((word, "1"));
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let mut bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    let last = *bytes.last().unwrap();
    bytes.extend(vec![last; times.parse::<usize>().unwrap() - 1]);
    bytes
}

/// Plays the host: every byte of the client must be the recorded one.
async fn play(mut peer: DuplexStream, messages: Vec<Recorded>) -> DuplexStream {
    for (index, (is_client, bytes)) in messages.into_iter().enumerate() {
        if is_client {
            let mut found = vec![0; bytes.len()];
            peer.read_exact(&mut found).await.unwrap();
            assert_eq!(found, bytes, "message {index}");
        } else {
            peer.write_all(&bytes).await.unwrap();
        }
    }
    peer
}

/// The disk of the sessions.
fn disk(filler: u8) -> Vec<u8> {
    let mut disk = vec![0; MIB];
    disk[..65536].fill(b'A');
    disk[65536..66048].fill(b'B');
    disk[66536..66556].fill(b'C');
    disk[131_072..196_608].fill(filler);
    disk
}

async fn assert_lines(name: &str, lines: Vec<Recorded>, tag: &str, service: &str) {
    let (mut stream, peer) = duplex(4 * MIB);
    let playing = tokio::spawn(play(peer, lines));
    check_greeting(&read_line(&mut stream).await.unwrap()).unwrap();
    let ticket = NfcTicket {
        host: String::new(),
        port: 902,
        thumbprint: None,
        service: service.to_owned(),
        secret: "<ticket>".to_owned(),
    };
    let announced = request_service(&mut stream, &ticket, tag).await.unwrap();
    assert!(announced.starts_with("B9:3E:C1") && announced.len() == 95, "{name}: {announced}");
    playing.await.unwrap();
}

async fn begin(
    frames: Vec<Recorded>,
    tag: &str,
) -> (NfcLink, tokio::task::JoinHandle<DuplexStream>) {
    let (stream, peer) = duplex(4 * MIB);
    let playing = tokio::spawn(play(peer, frames));
    let mut link = NfcLink::new(Box::new(stream));
    link.begin(tag).await.unwrap();
    (link, playing)
}

/// Returns the bytes of the oldest read.
async fn read_out(connection: &mut NfcConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        match connection.next_event(LIMIT).await.unwrap() {
            ReplyEvent::Data(_, chunk) => bytes.extend(chunk),
            _ => return bytes,
        }
    }
}

async fn assert_session(
    name: &str,
    frames: Vec<Recorded>,
    tag: &str,
    batches: &[&[Range<u64>]],
    filler: u8,
) {
    let (mut link, playing) = begin(frames, tag).await;
    let file = link.open_file("[ds1] vm1/vm1.vmdk").await.unwrap();
    assert_eq!((file.capacity, file.sector_bytes), (MIB as u64, 512), "{name}");
    let mut connection = NfcConnection::new(link, file, "host".to_owned());
    for batch in batches {
        for range in *batch {
            connection.request_read(range.clone(), LIMIT).await.unwrap();
        }
        for range in *batch {
            let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
            assert!(
                read_out(&mut connection).await == disk(filler)[range.clone()],
                "{name} {range:?}"
            );
        }
    }
    if matches!(name, "nbdssl" | "nbd") {
        assert_keys(&mut connection.link, file.handle).await;
        let used = connection.list_used(LIMIT).await.unwrap().unwrap();
        assert_eq!(used[..], [0..3 << 16, 15 << 16..16 << 16], "{name}");
    }
    connection.close(LIMIT).await;
    playing.await.unwrap();
}

/// Asks for two entries of the disk's data base, which our client never does.
async fn assert_keys(link: &mut NfcLink, handle: u64) {
    for (key, value) in [("adapterType", "lsilogic"), ("isDigest", "")] {
        let length = u64::try_from(key.len()).unwrap();
        let payload = [handle.to_le_bytes(), length.to_le_bytes()].concat();
        link.send_frame(11, &payload, key.as_bytes()).await.unwrap();
        let header = link.read_header().await.unwrap();
        let reply: [u8; 16] = link.read_payload(header).await.unwrap();
        let mut found = vec![0; reply[12].into()];
        link.stream.read_exact(&mut found).await.unwrap();
        assert_eq!(found, value.as_bytes());
    }
}

#[tokio::test]
async fn the_client_sends_the_recorded_bytes() {
    const READS: &[Range<u64>] = &[0..512, 0..66048, 65536..131_072];
    let each: Vec<&[Range<u64>]> = READS.chunks(1).collect();
    for (name, text, service, reads) in [
        ("nbdssl", include_str!("../../tests/nfc/nbdssl.hex"), "vpxa-nfcssl", 2),
        ("nbd", include_str!("../../tests/nfc/nbd.hex"), "vpxa-nfc", 2),
        ("esxi-nbdssl", include_str!("../../tests/nfc/esxi-nbdssl.hex"), "nfcssl", 2),
        ("nbdssl-zlib", include_str!("../../tests/nfc/nbdssl-zlib.hex"), "vpxa-nfcssl", 3),
        ("nbdssl-skipz", include_str!("../../tests/nfc/nbdssl-skipz.hex"), "vpxa-nfcssl", 3),
    ] {
        let (lines, frames) = recorded(text);
        assert_lines(name, lines, "PlainText", service).await;
        assert_session(name, frames, "PlainText", &each[..reads], 0).await;
    }
    let (lines, frames) = recorded(include_str!("../../tests/nfc/in-flight.hex"));
    let tag = "AbAbAbAbAbAbAbAb";
    assert_lines("in-flight", lines, tag, "vpxa-nfcssl").await;
    let both: &[&[Range<u64>]] = &[&[0..131_072, 131_072..262_144]];
    assert_session("in-flight", frames, tag, both, b'D').await;
}

#[tokio::test]
async fn a_refused_disk_is_explained() {
    let (_, frames) = recorded(include_str!("../../tests/nfc/open-refused.hex"));
    let (mut link, playing) = begin(frames, "PlainText").await;
    let error = link.open_file("[ds1] other/other.vmdk").await.unwrap_err();
    assert!(matches!(error, AttemptError::Final(_)));
    let error = error.into_error().to_string();
    let begin = "the host does not open [ds1] other/other.vmdk: error 11: NfcAioProcessOpenFileMsg: permission check failed: ";
    assert!(error.starts_with(begin) && error.contains("DiskRandomRead"), "{error}");
    playing.await.unwrap();
}

#[tokio::test]
async fn compression_that_nobody_asked_for_is_refused() {
    let (_, frames) = recorded(include_str!("../../tests/nfc/nbdssl-fastlz.hex"));
    let (mut link, playing) = begin(frames, "PlainText").await;
    let file = link.open_file("[ds1] vm1/vm1.vmdk").await.unwrap();
    let mut connection = NfcConnection::new(link, file, "host".to_owned());
    connection.request_read(0..512, LIMIT).await.unwrap();
    let error = connection.next_event(LIMIT).await.err().unwrap().into_error().to_string();
    assert!(error.ends_with("compression 2, which was not asked for"), "{error}");
    playing.abort();
}

/// A connection on which the host has already sent `replies`.
fn answered(replies: Vec<u8>) -> NfcConnection {
    let stream = join(Cursor::new(replies), sink());
    let link = NfcLink::new(Box::new(stream));
    let file = OpenedFile { handle: 7, capacity: MIB as u64, sector_bytes: 512 };
    NfcConnection::new(link, file, "host".to_owned())
}

/// One fragment of a reply.
#[derive(Debug, Clone)]
struct Piece {
    operation: u32,
    offset: u64,
    length: u32,
    from: u32,
    bytes: Vec<u8>,
    compression: u32,
}

impl Piece {
    fn encode(&self) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).unwrap();
        let zlib = || {
            let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
            std::io::Write::write_all(&mut zlib, &self.bytes).unwrap();
            zlib.finish().unwrap()
        };
        let is_zero = self.bytes.iter().all(|byte| *byte == 0);
        let (compression, data) = match self.compression {
            fragment::ZLIB if zlib().len() < self.bytes.len() => (fragment::ZLIB, zlib()),
            fragment::SKIP_ZEROS if is_zero => {
                (fragment::SKIP_ZEROS, [length, 0].map(u32::to_le_bytes).concat())
            }
            _ => (fragment::NONE, self.bytes.clone()),
        };
        let mut payload = [0; 44];
        payload[8] = 1;
        payload[16..24].copy_from_slice(&self.offset.to_le_bytes());
        let data_bytes = u32::try_from(data.len()).unwrap();
        for (at, number) in
            [(12, compression), (24, self.length), (28, self.from), (32, length), (36, data_bytes)]
        {
            payload[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        wire::encode_frame(wire::READ, self.operation, &payload, &data)
    }
}

/// Sectors of the disk in the property below.
const SECTORS: usize = 2048;

prop_compose! {
    /// A disk, reads that follow each other, and their replies in any order.
    fn exchange()(
        runs in prop::collection::vec((1usize..200, any::<u8>()), 1..40),
        ends in prop::collection::btree_set(1usize..SECTORS, 1..16),
        cuts in prop::collection::vec((1usize..300, 0u32..4), 1..20),
        seed in any::<u64>(),
    ) -> (Vec<u8>, Vec<Range<u64>>, Vec<Piece>) {
        let mut disk: Vec<u8> =
            runs.iter().flat_map(|(sectors, byte)| vec![byte / 128 * byte; sectors * 512]).collect();
        disk.resize(MIB, 0);
        let bounds: Vec<usize> = std::iter::once(0).chain(ends).collect();
        let mut pieces = Vec::new();
        let mut cuts = cuts.iter().cycle();
        let mut reads = Vec::new();
        for (operation, pair) in (0..).zip(bounds.windows(2)) {
            let (start, end) = (pair[0] * 512, pair[1] * 512);
            reads.push(start as u64..end as u64);
            let mut at = start;
            while at < end {
                let (sectors, compression) = *cuts.next().unwrap();
                let to = end.min(at + sectors * 512);
                pieces.push(Piece {
                    operation,
                    offset: start as u64,
                    length: u32::try_from(end - start).unwrap(),
                    from: u32::try_from(at - start).unwrap(),
                    bytes: disk[at..to].to_vec(),
                    compression,
                });
                at = to;
            }
        }
        fastrand::Rng::with_seed(seed).shuffle(&mut pieces);
        (disk, reads, pieces)
    }
}

async fn send_reads(connection: &mut NfcConnection, reads: &[Range<u64>]) {
    for read in reads {
        connection.request_read(read.clone(), LIMIT).await.unwrap();
    }
}

/// Answers reads of `disk`, and returns how many bytes were asked for.
async fn serve(mut peer: DuplexStream, disk: Vec<u8>) -> u64 {
    let (mut frame, mut asked) = ([0; 60], 0);
    while peer.read_exact(&mut frame).await.is_ok() {
        let operation = FrameHeader::parse(frame.first_chunk().unwrap()).unwrap().operation;
        let offset = u64::from_le_bytes(*frame[32..].first_chunk().unwrap());
        let length = u64::from_le_bytes(*frame[40..].first_chunk().unwrap());
        asked += length;
        let at = usize::try_from(offset).unwrap();
        let bytes = disk[at..at + usize::try_from(length).unwrap()].to_vec();
        let (length, compression) = (u32::try_from(length).unwrap(), fragment::SKIP_ZEROS);
        let piece = Piece { operation, offset, length, from: 0, bytes, compression };
        peer.write_all(&piece.encode()).await.unwrap();
    }
    asked
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_order_of_fragments_gives_the_disk((disk, reads, pieces) in exchange()) {
        run(async {
            let mut connection = answered(pieces.iter().flat_map(Piece::encode).collect());
            send_reads(&mut connection, &reads).await;
            for read in &reads {
                let range = usize::try_from(read.start).unwrap()..usize::try_from(read.end).unwrap();
                assert!(read_out(&mut connection).await == disk[range], "{read:?}");
            }
            let error = connection.next_event(LIMIT).await.err().unwrap().into_error().to_string();
            assert_eq!(error, "host: the server closed the connection");
        });
    }

    #[test]
    fn what_arrived_before_a_cut_is_not_requested_again((disk, reads, pieces) in exchange(), part in 0usize..1000) {
        run(async {
            let bytes: Vec<u8> = pieces.iter().flat_map(Piece::encode).collect();
            let cut = bytes.len() * part / 1000;
            let mut first = answered(bytes[..cut].to_vec());
            send_reads(&mut first, &reads).await;
            while first.receive_next().await.is_ok() {}
            let file = first.file;
            let (stream, peer) = duplex(4 * MIB);
            let serving = tokio::spawn(serve(peer, disk.clone()));
            let mut second = NfcConnection::new(NfcLink::new(Box::new(stream)), file, "host".to_owned());
            second.carry_reads(first);
            send_reads(&mut second, &reads).await;
            for read in &reads {
                let range = usize::try_from(read.start).unwrap()..usize::try_from(read.end).unwrap();
                assert!(read_out(&mut second).await == disk[range], "{read:?}");
            }
            drop(second);
            // The whole fragments that arrived are kept; the rest is requested again.
            let mut sent = 0;
            let arrived = pieces.iter().take_while(|piece| {
                sent += piece.encode().len();
                sent <= cut
            });
            let arrived: u64 = arrived.map(|piece| piece.bytes.len() as u64).sum();
            assert_eq!(serving.await.unwrap(), reads.last().unwrap().end - arrived);
        });
    }
}
