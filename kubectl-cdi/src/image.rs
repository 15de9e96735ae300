//! The local file to upload: its format, the size of its disk, and whether it changes during the
//! upload.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use codec::encode::PIECE_BYTES;
use codec::encode::outlet::{OutletClosedError, PieceOutlet};
use diskimage::Format;
use fetch::file::FileSource;
use fetch::scheme::find_scheme;
use inspect::{Inspection, inspect_image, measure_image};
use parking_lot::Mutex;
use program::exit::ExitReason;
use serde::{Deserialize, Serialize};
use stream::digest::Checksum;
use stream::error::{DecodeError, errno_text};
use stream::local::{LocalExtent, LocalFile, read_exact_at};
use stream::marks::{HELD_BYTES, MARK_BYTES, MAX_MARKS, marks_of};
use stream::options::{ChosenFormat, KEEP_BY_OPTION, PayloadKind, ReadOptions};
use stream::prefix_crc::PrefixCrc;
use tokio_util::sync::CancellationToken;

use crate::content_check::ContentCheck;
use crate::error::PluginError;
use crate::file_identity::{FileIdentity, full_path};

/// An opened disk image or tar archive.
pub(crate) struct ImageFile {
    pub(crate) file: File,
    pub(crate) identity: FileIdentity,
    /// The format that the user chose.
    format: Option<ChosenFormat>,
    /// The result of the inspection, or `None` for an archive.
    facts: Option<Inspection>,
    /// The check of the content, if the user gave a checksum.
    check: Option<Mutex<ContentCheck>>,
}

/// Returns the reason why an image is rejected. An empty image gets a different sentence, because
/// CDI's message about it refers to the header.
pub(crate) fn refusal_text(error: &stream::Error) -> String {
    match error {
        stream::Error::Decode(DecodeError::Empty) => {
            "it is empty: check what it should contain".to_owned()
        }
        error if error.can_be_kept() => format!("{error}{KEEP_BY_OPTION}"),
        error => error.to_string(),
    }
}

/// Creates the error for an image that cannot be uploaded.
fn refused_image(message: String) -> PluginError {
    PluginError::new(ExitReason::Image, message)
}

fn unreadable_file(path: &Path, error: &io::Error) -> PluginError {
    let (path, reason) = (path.display(), errno_text(error));
    PluginError::unread(format!("cannot read {path}: {reason}; check the path"))
}

impl From<OutletClosedError> for PluginError {
    /// The consumer of the stream was dropped.
    fn from(_: OutletClosedError) -> Self {
        Self::unread("the upload was stopped")
    }
}

impl ImageFile {
    /// Opens a file. For a disk image, the header and the tables are inspected. For an archive,
    /// the only check is that it is a tar.
    /// A `format` that the user chose is not detected.
    pub(crate) fn open(
        path: &Path,
        is_archive: bool,
        format: Option<ChosenFormat>,
    ) -> Result<Self, PluginError> {
        if path == Path::new("-") {
            return Err(PluginError::usage(
                "an upload from standard input is not supported: write the image to a file, and upload that",
            ));
        }
        let unreadable = |error| match remote_address(path) {
            Some(address) => PluginError::usage(format!(
                "{address} is not a file on this machine: let the cluster fetch it with kubectl cdi import {address} TARGET"
            )),
            None => unreadable_file(path, &error),
        };
        let not_regular = || {
            let reason = "uploads need random access, so pipes and directories are not supported";
            let path = path.display();
            PluginError::unread(format!("{path} is not a regular file; {reason}"))
        };
        let rejected = |reason: &str| refused_image(format!("{}: {reason}", path.display()));
        let absolute = full_path(path).map_err(unreadable)?;
        // The type is checked before opening, because opening a pipe blocks until another process
        // writes to it.
        if !fs::metadata(&absolute).map_err(unreadable)?.is_file() {
            return Err(not_regular());
        }
        let file = File::open(&absolute).map_err(unreadable)?;
        if !file.metadata().map_err(unreadable)?.is_file() {
            return Err(not_regular());
        }
        let identity = FileIdentity::new(absolute, &file).map_err(unreadable)?;
        let source = FileSource::open(&identity.path, CancellationToken::new())
            .map_err(|error| refused_image(stream::Error::from(error).to_string()))?;
        let payload = PayloadKind::from(format);
        let facts = inspect_image(&source, payload, &ReadOptions::default());
        if is_archive {
            // The server reports all other defects of an archive.
            let what = match facts {
                Err(error) if error.can_be_kept() => Some(format!("another file: {error}")),
                facts => facts.ok().and_then(|facts| non_archive(&file, &facts)),
            };
            return match what {
                Some(what) => Err(refused_image(format!(
                    "{} is not a tar archive but {what}: leave out --archive",
                    path.display()
                ))),
                None => Ok(Self { file, identity, format: None, facts: None, check: None }),
            };
        }
        let facts = facts.map_err(|error| rejected(&refusal_text(&error)))?;
        match &facts.refused {
            Some(reason) => Err(rejected(reason)),
            None => Ok(Self { file, identity, format, facts: Some(facts), check: None }),
        }
    }

    /// Compares the content of the file with `expected` while it is read.
    pub(crate) fn with_checksum(self, expected: Option<Checksum>) -> Result<Self, PluginError> {
        let check = expected.map(ContentCheck::start).transpose()?;
        Ok(Self { check: check.map(Mutex::new), ..self })
    }

    /// Returns the size of the disk in bytes, if it is known without reading the whole image.
    pub(crate) fn disk_bytes(&self) -> Option<u64> {
        self.facts.as_ref()?.virtual_size
    }

    /// Reads the whole image to find the size of its disk in bytes. This may take long; it ends
    /// early when `stop` is cancelled.
    pub(crate) fn measure_bytes(&self, stop: CancellationToken) -> Result<u64, PluginError> {
        let payload = PayloadKind::from(self.format);
        let measured = FileSource::open(&self.identity.path, stop.clone())
            .map_err(stream::Error::from)
            .and_then(|source| measure_image(&source, payload, &ReadOptions::with_stop(stop)));
        measured.map_err(|error| refused_image(error.to_string()))
    }

    /// Returns the format that the server need not detect: the chosen one, or raw, because a
    /// guest may have written anything to its disk. `is_encoded` is true if the stream is encoded.
    pub(crate) fn stated_format(&self, is_encoded: bool) -> Option<ChosenFormat> {
        match (self.is_raw(), is_encoded) {
            (true, true) => Some(ChosenFormat::VerbatimInZstd),
            (true, false) => Some(ChosenFormat::Verbatim),
            (false, _) => self.format,
        }
    }

    /// Returns true if the image is not compressed as a whole, so that it is useful to compress
    /// the stream.
    pub(crate) fn is_plain(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.layers.is_empty())
    }

    /// Returns true for an uncompressed raw disk, whose bytes are the bytes of the volume.
    pub(crate) fn is_raw(&self) -> bool {
        let is_raw = |facts: &Inspection| facts.layers.is_empty() && facts.format == Format::Raw;
        self.facts.as_ref().is_some_and(is_raw)
    }

    /// Computes checksums of prefixes of a raw disk, for an upload server that may already have
    /// everything before `offset`. The ends of the prefixes are close together just before
    /// `offset`, where the server's data most likely ends, and further apart before that.
    pub(crate) fn prefix_marks(&self, offset: u64) -> Result<Vec<PrefixCrc>, PluginError> {
        let last = offset / MARK_BYTES * MARK_BYTES;
        let mut ends = Vec::new();
        let mut back = 0;
        while back < last && ends.len() < MAX_MARKS {
            ends.push(last - back);
            back += (back / 8).next_multiple_of(MARK_BYTES).max(MARK_BYTES);
        }
        ends.reverse();
        let marks = marks_of(&self.file, &ends, &CancellationToken::new());
        marks.map_err(|error| self.unreadable_error(&error))
    }

    fn unreadable_error(&self, error: &io::Error) -> PluginError {
        unreadable_file(&self.identity.path, error)
    }

    /// Reads the image starting at `offset` of the stream. Holes are passed on as zeros without
    /// being read, and the part that the server has `kept` is skipped.
    pub(crate) fn read_from(
        &self,
        offset: u64,
        kept: KeptPrefix,
        outlet: &mut PieceOutlet<'_>,
    ) -> Result<(), PluginError> {
        let unreadable = |error| self.unreadable_error(&error);
        let local = self.local_file()?;
        let mut reader = local.chunk_reader(PIECE_BYTES);
        reader.skip_to(kept.in_image(offset));
        loop {
            // This is the number of bytes until the kept part begins; after the kept part there is
            // no limit.
            let position = reader.position();
            let left = kept.bytes_left(position);
            let Some(part) = reader.next_part().map_err(unreadable)? else {
                break;
            };
            if let Some(check) = &self.check {
                check.lock().add_extent(position, &part);
            }
            let length = match part {
                LocalExtent::Hole(bytes) => {
                    outlet.append_zeros(bytes.min(left))?;
                    bytes
                }
                LocalExtent::Data(mut bytes) => {
                    let length = bytes.len() as u64;
                    bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                    outlet.append_piece(bytes)?;
                    length
                }
            };
            if length >= left {
                reader.skip_to(kept.end_offset());
            }
        }
        outlet.flush()?;
        self.check_unchanged()?;
        match &self.check {
            // The stream fails here, so that a request that contains the whole image fails too.
            Some(check) if check.lock().has_hashed(self.identity.bytes) => self.verify_checksum(),
            _ => Ok(()),
        }
    }

    /// Returns true if the user gave a checksum.
    pub(crate) fn has_checksum(&self) -> bool {
        self.check.is_some()
    }

    /// Fails if the content does not have the expected checksum. This reads the parts of the file
    /// that no stream contained, which may take long.
    pub(crate) fn verify_checksum(&self) -> Result<(), PluginError> {
        let Some(check) = &self.check else { return Ok(()) };
        let verified = check.lock().finish(&self.local_file()?);
        let verified = verified.map_err(|error| self.unreadable_error(&error))?;
        verified.map_err(|mismatch| {
            let path = self.identity.path.display();
            let message = format!("{path}: {mismatch}; fetch it again, or check --checksum");
            PluginError::new(ExitReason::Checksum, message)
        })
    }

    fn local_file(&self) -> Result<LocalFile, PluginError> {
        let local = self.file.try_clone().and_then(LocalFile::new);
        local.map_err(|error| self.unreadable_error(&error))
    }

    /// Fails if the file's size or modification time has changed since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result<(), PluginError> {
        match FileIdentity::new(self.identity.path.clone(), &self.file) {
            Ok(now) if now == self.identity => Ok(()),
            _ => Err(PluginError::unread(format!(
                "{} was changed while it was sent: upload it again",
                self.identity.path.display()
            ))),
        }
    }
}

/// The part of an image that the server has kept from an earlier upload and that the stream
/// therefore omits: everything between the first [`HELD_BYTES`] and an end offset. It is empty by
/// default. The first [`HELD_BYTES`] are always sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct KeptPrefix(u64);

impl KeptPrefix {
    /// Returns the part before `end`, without the first [`HELD_BYTES`].
    pub(crate) fn ending_at(end: u64) -> Self {
        Self(end)
    }

    /// Returns the end offset of the part, or 0 if nothing is kept.
    pub(crate) fn end_offset(self) -> u64 {
        self.0
    }

    /// Converts an offset in the stream to an offset in the image.
    pub(crate) fn in_image(self, offset: u64) -> u64 {
        if offset < HELD_BYTES { offset } else { offset + self.0.saturating_sub(HELD_BYTES) }
    }

    /// Returns the number of bytes, starting at this offset of the image, that are part of the
    /// stream without a gap.
    fn bytes_left(self, offset: u64) -> u64 {
        if offset < self.0 { HELD_BYTES.saturating_sub(offset) } else { u64::MAX }
    }
}

/// Returns `path` as an address if it is a URL from which a cluster can fetch, and not a local
/// file.
fn remote_address(path: &Path) -> Option<&str> {
    let address = path.to_str()?;
    let scheme = find_scheme(address.split_once("://")?.0)?;
    scheme.is_for_clusters.then_some(address)
}

/// Size of a tar header (POSIX.1-2024, pax, "ustar Interchange Format").
const TAR_HEADER_BYTES: usize = 512;

/// Describes the content of `file` if it is not a tar. If the file is compressed, only disk images
/// can be distinguished from a tar.
fn non_archive(file: &File, facts: &Inspection) -> Option<String> {
    if facts.format != Format::Raw {
        return Some(format!("an image in {} format", facts.format));
    }
    let mut header = [0; TAR_HEADER_BYTES];
    let is_plain = facts.layers.is_empty() && read_exact_at(file, &mut header, 0).is_ok();
    // An empty archive consists of zeros.
    let is_tar = tar::first_name(&header).is_some() || header.iter().all(|byte| *byte == 0);
    (is_plain && !is_tar).then(|| "a raw disk, or another kind of file".to_owned())
}

#[cfg(test)]
mod tests {
    use codec::encode::VolumePiece;

    use super::*;

    #[test]
    fn the_kept_part_is_left_out_of_the_stream() {
        const MIB: usize = 1 << 20;
        // A hole that begins within the first MiB and ends after 9 MiB, with data around it: it
        // spans the kept parts that end at 2 and 8 MiB.
        let mut content = vec![7; 12 * MIB];
        content[MIB / 2 + 5..9 * MIB + 3].fill(0);
        let folder = tempfile::tempdir().unwrap();
        for hole in [false, true] {
            let path = folder.path().join(hole.to_string());
            match hole {
                true => testkit::disk::write_sparse(&path, &content),
                false => fs::write(&path, &content).unwrap(),
            }
            let image = ImageFile::open(&path, false, None).unwrap();
            assert!(image.is_raw());
            for end in [0, 2, 8, 12] {
                let kept = KeptPrefix::ending_at((end * MIB) as u64);
                let expected = match end {
                    0 => content.clone(),
                    end => [&content[..MIB], &content[end * MIB..]].concat(),
                };
                for begin in [0, 5, MIB, MIB + 9] {
                    let begin = begin.min(expected.len());
                    let mut stream = Vec::new();
                    let mut sink = |piece| {
                        match piece {
                            VolumePiece::Zeros(count) => {
                                stream.resize(stream.len() + usize::try_from(count).unwrap(), 0)
                            }
                            VolumePiece::Data(bytes) => stream.extend_from_slice(&bytes),
                        }
                        Ok(())
                    };
                    let mut outlet = PieceOutlet::new(&mut sink, 1 << 20);
                    image.read_from(begin as u64, kept, &mut outlet).unwrap();
                    assert!(stream == expected[begin..], "{hole} {end} {begin}");
                }
            }
        }
    }

    #[test]
    fn other_things_than_files_and_tars_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let tar = testkit::oci::tar(&[("a", b"content")]);
        let packed = testkit::tools::filter("gzip", ["-1c"], &tar);
        for (name, content, is_tar) in [
            ("tar", tar, true),
            ("packed", packed, true),
            ("raw", vec![7; 4096], false),
            ("zero", vec![0; 1024], true),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            assert_eq!(ImageFile::open(&path, true, None).is_ok(), is_tar, "{name}");
        }
        let said =
            |path: &str| ImageFile::open(Path::new(path), false, None).err().unwrap().to_string();
        assert!(
            said("https://h/d.img").ends_with("with kubectl cdi import https://h/d.img TARGET")
        );
        assert!(said("-").starts_with("an upload from standard input is not supported"));
        assert!(said("ftp://h/d.img").starts_with("cannot read ftp://h/d.img: "));
        assert!(said("/").contains("is not a regular file"));
    }

    #[test]
    fn marks_are_closer_together_towards_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        File::create(&path).unwrap().set_len(1 << 30).unwrap();
        let image = ImageFile::open(&path, false, None).unwrap();
        assert_eq!(image.prefix_marks(2 * MARK_BYTES - 1).unwrap(), []);
        let ends: Vec<u64> = image
            .prefix_marks((1 << 30) - 1)
            .unwrap()
            .into_iter()
            .map(PrefixCrc::end_offset)
            .collect();
        assert!(ends.is_sorted() && ends.len() < MAX_MARKS);
        assert_eq!(ends.last(), Some(&((1 << 30) - MARK_BYTES)));
        // The distance between two marks is the most that has to be sent again: an eighth of the
        // distance to the end, and one mark.
        let far = |pair: &[u64]| pair[1] - pair[0] > ((1 << 30) - pair[1]) / 8 + MARK_BYTES;
        assert!(!ends.windows(2).any(far), "{ends:?}");
    }
}
