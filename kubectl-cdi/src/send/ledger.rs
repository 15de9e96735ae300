//! A record of the pieces of an image that were sent. It allows an upload to be resumed in the
//! middle, even by another process.
//!
//! The stream is encoded again after each interruption. A piece that was sent in part must be
//! encoded to the same bytes, so its offset, its length and whether it was compressed are recorded
//! before its first byte is sent. The pieces after it may be encoded differently than before.

use std::collections::VecDeque;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};

use codec::encode::outgoing::{PassedPiece, PieceKind};
use crc_fast::CrcAlgorithm;
use serde::{Deserialize, Serialize};
use stream::marks::HELD_BYTES;

use super::location::UploadLocation;
use crate::file_identity::FileIdentity;
use crate::image::KeptPrefix;

/// Maximum number of records in memory, enough for a GiB of the image. The server lags behind only
/// by the bytes in flight, which are a few MiB.
const MAX_RECORDS: usize = 4096;

/// The checksum of the stream. A CRC suffices, because it only has to detect damage. SHA-256 would
/// take more time than the rest of the upload on processors without SHA instructions.
const CHECKSUM: CrcAlgorithm = CrcAlgorithm::Crc64Nvme;

/// The name of the checksum algorithm in headers.
pub(crate) const CHECKSUM_NAME: &str = "crc64nvme";

/// The first line of the ledger file, which identifies the upload and the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LedgerHeader {
    version: String,
    image: FileIdentity,
    /// True if the stream is compressed with zstd.
    pub(crate) is_encoded: bool,
    /// The path of the upload on the proxy.
    pub(crate) location: UploadLocation,
    /// The part of the image that the server already has and that the stream omits.
    pub(crate) kept: KeptPrefix,
}

/// The state of the stream before a piece: a line of the ledger file after the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct LedgerRecord {
    #[serde(with = "StoredPiece")]
    passed: PassedPiece,
    /// State of the checksum before this piece.
    crc: u64,
}

/// The form of a piece in the ledger file.
#[derive(Serialize, Deserialize)]
#[serde(remote = "PassedPiece")]
struct StoredPiece {
    stream_offset: u64,
    offset: u64,
    length: u64,
    #[serde(with = "StoredKind")]
    kind: PieceKind,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "PieceKind")]
enum StoredKind {
    Zeros,
    Stored,
    Squeezed,
}

/// The record of the pieces that were sent, in memory and in a file.
pub(crate) struct PieceLedger {
    records: VecDeque<LedgerRecord>,
    /// Checksum of the stream so far.
    crc: crc_fast::Digest,
    /// Length of the stream so far, in bytes.
    position: u64,
    /// The part of the image that the server already has and that the stream omits.
    kept: KeptPrefix,
    /// Number of bytes of earlier streams that the server has kept and that are not sent again.
    saved: u64,
    /// Generation of the current stream. Streams of older generations must stop.
    turn: u64,
    /// The ledger file. It is `None` if the file cannot be used; then only this process can resume
    /// the upload.
    file: Option<File>,
}

impl PieceLedger {
    /// Creates an empty ledger, which is also written to `file` if one is given.
    pub(crate) fn new(file: Option<File>) -> Self {
        Self {
            records: VecDeque::new(),
            crc: crc_fast::Digest::new(CHECKSUM),
            position: 0,
            kept: KeptPrefix::default(),
            saved: 0,
            turn: 0,
            file,
        }
    }

    /// Discards all records and begins a new upload at the path `location` of the proxy. It sends
    /// the whole image except the part that is `kept`.
    pub(crate) fn begin_upload(
        &mut self,
        image: &FileIdentity,
        is_encoded: bool,
        location: &UploadLocation,
        kept: KeptPrefix,
    ) {
        let mut saved = 0;
        if kept.end_offset() > 0 && kept.end_offset() >= self.kept.end_offset() {
            // The first HELD_BYTES are sent again, so they do not count as saved bytes.
            let there = self.stream_offset_of(kept.end_offset());
            saved = self.saved + there.saturating_sub(HELD_BYTES);
        }
        *self = Self { kept, saved, turn: self.turn + 1, ..Self::new(self.file.take()) };
        let upload = LedgerHeader {
            version: program::VERSION.clone(),
            image: image.clone(),
            is_encoded,
            location: location.clone(),
            kept,
        };
        self.file = self.file.take().filter(|file| {
            let written = file.set_len(0).and_then(|()| append_line(file, &upload));
            written.inspect_err(|error| cannot_be_continued(error)).is_ok()
        });
    }

    /// Reads what another process has written to the file. Returns `None` if the file is about
    /// another image, or was written by another version of the program.
    pub(crate) fn load_file(&mut self, image: &FileIdentity) -> Option<LedgerHeader> {
        let file = self.file.as_ref()?;
        let mut lines = BufReader::new(file).lines().map_while(Result::ok);
        let upload: LedgerHeader = serde_json::from_str(&lines.next()?).ok()?;
        // Another version may compress the same piece to different bytes.
        if upload.image != *image || upload.version != *program::VERSION {
            return None;
        }
        // The last line may be truncated, so reading stops at the first malformed line.
        let records: Vec<LedgerRecord> =
            lines.map_while(|line| serde_json::from_str(&line).ok()).collect();
        for record in records {
            self.push_record(record);
        }
        self.kept = upload.kept;
        Some(upload)
    }

    /// Returns true if the file exists and is empty, which means that no upload was begun.
    pub(crate) fn is_blank(&self) -> bool {
        let metadata = self.file.as_ref().and_then(|file| file.metadata().ok());
        metadata.is_some_and(|metadata| metadata.len() == 0)
    }

    /// Records a piece. This must be called before the first byte of the piece is sent.
    pub(crate) fn note_piece(&mut self, passed: PassedPiece) {
        let record = LedgerRecord { passed, crc: self.crc.get_state() };
        self.push_record(record);
        if let Some(file) = &self.file
            && append_line(file, &record).inspect_err(|error| cannot_be_continued(error)).is_err()
        {
            self.file = None;
        }
    }

    fn push_record(&mut self, record: LedgerRecord) {
        // After a return to an earlier offset, the records from this offset on describe a stream
        // that was abandoned.
        while self
            .records
            .back()
            .is_some_and(|last| last.passed.stream_offset >= record.passed.stream_offset)
        {
            self.records.pop_back();
        }
        self.records.push_back(record);
        if self.records.len() > MAX_RECORDS {
            self.records.pop_front();
        }
    }

    /// Adds the next bytes of the stream to its checksum and its length.
    pub(crate) fn pass_bytes(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
        self.position += bytes.len() as u64;
    }

    /// Goes back to the piece that contains the byte at `offset` of the stream, or that begins or
    /// ends at this offset. The caller must send this piece next, encoded as before. Returns
    /// `None` if no record of such a piece is left.
    pub(crate) fn return_to(&mut self, offset: u64) -> Option<PassedPiece> {
        while self.records.back().is_some_and(|last| last.passed.stream_offset > offset) {
            self.records.pop_back();
        }
        let LedgerRecord { passed, crc } = self.records.pop_back()?;
        self.crc = crc_fast::Digest::new_with_init_state(CHECKSUM, crc);
        self.position = passed.stream_offset;
        Some(passed)
    }

    /// Returns the part of the image that the server already has and that the stream omits.
    pub(crate) fn kept_prefix(&self) -> KeptPrefix {
        self.kept
    }

    /// Returns the number of bytes of earlier streams that the server has kept and that are not
    /// sent again.
    pub(crate) fn saved_bytes(&self) -> u64 {
        self.saved
    }

    /// Returns the offset in the image up to which everything was sent or is kept. The last piece
    /// is excluded, because it may have been sent only in part.
    pub(crate) fn image_offset(&self) -> u64 {
        let sent = self.records.back().map_or(0, |last| last.passed.offset);
        self.kept.in_image(sent).max(self.kept.end_offset())
    }

    /// Returns the stream offset of the last recorded piece that begins at or before this offset
    /// of the image, or 0 if there is no such piece.
    fn stream_offset_of(&self, image_offset: u64) -> u64 {
        let pieces = self.records.iter().rev().map(|record| record.passed);
        let mut before =
            pieces.skip_while(|passed| self.kept.in_image(passed.offset) > image_offset);
        before.next().map_or(0, |passed| passed.stream_offset)
    }

    /// Returns a new generation for a new stream. Older streams, whose connections may still ask
    /// for data, must stop.
    pub(crate) fn take_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    /// Returns true if no newer stream has begun since this generation.
    pub(crate) fn is_turn(&self, turn: u64) -> bool {
        self.turn == turn
    }

    /// Returns the length of the stream so far, in bytes.
    pub(crate) fn stream_position(&self) -> u64 {
        self.position
    }

    /// Returns the checksum of the stream so far, as the value of a header.
    pub(crate) fn checksum_header(&self) -> String {
        format!("{CHECKSUM_NAME}:{:016x}", self.crc.finalize())
    }
}

/// Writes `line` as JSON at the end of the file.
fn append_line(mut file: &File, line: &impl Serialize) -> io::Result<()> {
    let line = serde_json::to_string(line)? + "\n";
    file.seek(SeekFrom::End(0))?;
    file.write_all(line.as_bytes())
}

pub(super) fn cannot_be_continued(why: impl Display) {
    tracing::warn!("no other process can continue this upload: {why}");
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::super::place::LockedFile;
    use super::*;

    fn passed(stream_offset: u64, offset: u64, kind: PieceKind) -> PassedPiece {
        PassedPiece { stream_offset, offset, length: 100, kind }
    }

    fn identity() -> FileIdentity {
        FileIdentity {
            path: "/image".into(),
            bytes: 300,
            changed: SystemTime::UNIX_EPOCH,
            inode: 6,
        }
    }

    #[test]
    fn an_upload_resumes_at_the_interrupted_piece_with_its_checksum() {
        let folder = tempfile::tempdir().unwrap();
        let uid = crate::cluster::ObjectUid::parse("u-1").unwrap();
        let open = || LockedFile::open(folder.path(), &uid);
        let place = open().unwrap().unwrap();
        assert!(open().is_err(), "a second process opened the same upload");
        let mut ledger = PieceLedger::new(place.clone_file().ok());
        let path = format!("{}/1", program::cdi::RESUMABLE);
        let location = UploadLocation::try_from(path.clone()).unwrap();
        ledger.begin_upload(&identity(), true, &location, KeptPrefix::ending_at(8 << 20));
        for (at, kind) in [(0, PieceKind::Stored), (1, PieceKind::Zeros), (2, PieceKind::Squeezed)]
        {
            ledger.note_piece(passed(at * 7, at * 100, kind));
            ledger.pass_bytes(b"abcdefg");
        }
        let whole = ledger.checksum_header();
        drop((ledger, place));
        let place = open().unwrap().unwrap();
        let mut ledger = PieceLedger::new(place.clone_file().ok());
        let upload = ledger.load_file(&identity()).unwrap();
        assert_eq!((upload.location.as_str(), upload.is_encoded), (path.as_str(), true));
        assert_eq!(upload.kept.end_offset(), 8 << 20);
        for (offset, expected) in [(0, 0), (99, 0), (100, 7), (1000, 14)] {
            assert_eq!(ledger.stream_offset_of(offset), expected);
        }
        assert_eq!(ledger.image_offset(), 8 << 20, "the kept part is not sent");
        for (offset, back) in
            [(20, passed(14, 200, PieceKind::Squeezed)), (13, passed(7, 100, PieceKind::Zeros))]
        {
            assert_eq!(ledger.return_to(offset), Some(back));
            assert_eq!(ledger.stream_position(), back.stream_offset);
            ledger.note_piece(back);
            ledger.pass_bytes(b"abcdefg");
        }
        ledger.note_piece(passed(14, 200, PieceKind::Stored));
        ledger.pass_bytes(b"abcdefg");
        assert_eq!(ledger.checksum_header(), whole);
        drop((ledger, place));
        let other = FileIdentity { inode: 7, ..identity() };
        let place = open().unwrap().unwrap();
        assert_eq!(PieceLedger::new(place.clone_file().ok()).load_file(&other), None);
        place.remove_file();
        drop(place);
        let place = open().unwrap().unwrap();
        assert_eq!(PieceLedger::new(place.clone_file().ok()).load_file(&identity()), None);
    }

    #[test]
    fn a_truncated_line_ends_the_ledger() {
        let record = LedgerRecord { passed: passed(1, 2, PieceKind::Zeros), crc: 0xabc };
        let line = serde_json::to_string(&record).unwrap();
        let parse = |line: &str| serde_json::from_str::<LedgerRecord>(line).ok();
        assert_eq!(parse(&line), Some(record));
        for end in 0..line.len() {
            assert_eq!(parse(&line[..end]), None);
        }
        assert_eq!(PieceLedger::new(None).return_to(0), None);
    }
}
