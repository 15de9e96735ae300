//! The disk on this machine: a file that gets its name when it is complete, or a pipe.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use datapath::checkpoints::{DiskCheckpoint, DiskCrc};
use datapath::chunks::ChunkStream;
use datapath::encode::{Encoding, PIECE_BYTES, PieceEncoder, VolumePiece};
use datapath::local::{LocalExtent, LocalFile};
use datapath::zeros::{ZEROS, data_runs, is_zero};

use super::error::DownloadError;
use super::frames::{self, FrameReader};
use super::names::FileNames;
use super::unix;

/// The format of the written disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskFormat {
    /// The bytes of the disk; zeros become holes.
    Raw,
    /// The bytes of the disk, compressed as zstd frames.
    RawZstd,
}

/// A disk that is written from its first byte to its last.
pub(crate) struct LocalDisk {
    output: File,
    /// The names of the file; `None` for a pipe.
    names: Option<FileNames>,
    encoder: Option<PieceEncoder>,
    crc: DiskCrc,
    /// The checkpoints up to the current position, in ascending order.
    checkpoints: Vec<DiskCheckpoint>,
    /// Zeros before the current position that are not written yet.
    zeros: u64,
    /// True if an earlier process has left bytes, and none of them is known to be equal to the
    /// volume. The file may then belong to another program.
    is_unproven: bool,
    /// The end of the last complete frame that an earlier process has left. The file is cut there
    /// only when its frames are known to be equal to the volume.
    cut_at: Option<u64>,
}

impl LocalDisk {
    /// Opens a disk in this format. `path` is the name that the file will have; `-` is stdout.
    pub(crate) fn open(path: &Path, format: DiskFormat) -> Result<Self, DownloadError> {
        let (output, names) = if path == Path::new("-") {
            let stdout = unix::unbuffered_stdout();
            (stdout.map_err(|error| DownloadError::local("open", path, error))?, None)
        } else {
            let names = FileNames::new(path);
            (names.open_partial()?, Some(names))
        };
        Ok(Self {
            output,
            names,
            encoder: (format == DiskFormat::RawZstd).then(|| Encoding::ZstdFile.new_encoder()),
            crc: DiskCrc::default(),
            checkpoints: Vec::new(),
            zeros: 0,
            is_unproven: false,
            cut_at: None,
        })
    }

    /// The number of bytes of the disk so far.
    pub(crate) fn position(&self) -> u64 {
        self.crc.position()
    }

    /// True if the beginning of the disk can be written again.
    pub(crate) fn is_file(&self) -> bool {
        self.names.is_some()
    }

    /// Returns an identity of the file that is valid as the value of a label. Two processes get the
    /// same one only if they write the same file, which its lock prevents at the same time.
    pub(crate) fn identity(&self) -> String {
        let bits = match &self.names {
            Some(names) => {
                let path = std::path::absolute(&names.complete);
                let path = path.as_deref().unwrap_or(&names.complete).as_os_str();
                let words = [unix::host_name(), path.as_encoded_bytes().to_vec()].join(&0);
                crc_fast::checksum(CrcAlgorithm::Crc64Nvme, &words)
            }
            None => fastrand::u64(..),
        };
        format!("{bits:016x}")
    }

    /// Returns the checkpoint at this offset, if it is known.
    pub(crate) fn checkpoint_at(&self, end: u64) -> Option<DiskCheckpoint> {
        if end == self.position() {
            return Some(self.crc.checkpoint());
        }
        let found = self.checkpoints.binary_search_by_key(&end, |known| known.end_offset());
        self.checkpoints.get(found.ok()?).copied()
    }

    /// Reads what an earlier process has left in the file. Stops early if `is_wanted` returns
    /// false.
    pub(crate) fn read_left_behind(
        &mut self,
        is_wanted: impl Fn() -> bool,
    ) -> Result<(), DownloadError> {
        if !self.is_file() {
            return Ok(());
        }
        let reading = match self.is_raw_file() {
            true => self.read_partial(is_wanted),
            false => self.read_frames(is_wanted),
        };
        reading.map_err(|error| self.error("read", error))?;
        self.is_unproven = self.position() > 0;
        Ok(())
    }

    fn read_partial(&mut self, is_wanted: impl Fn() -> bool) -> io::Result<()> {
        let local = LocalFile::new(self.output.try_clone()?)?;
        let checkpoints = &mut self.checkpoints;
        self.crc.read_until(&local, local.size(), |checkpoint| {
            checkpoints.push(checkpoint);
            is_wanted()
        })
    }

    fn read_frames(&mut self, is_wanted: impl Fn() -> bool) -> io::Result<()> {
        let mut frames = FrameReader::new(&self.output)?;
        let mut end = 0;
        while let Some(frame) = frames.next_frame()? {
            if !is_wanted() {
                return Ok(());
            }
            let length = frame.len() as u64;
            let (before, known) = (self.crc.clone(), self.checkpoints.len());
            if self.read_frame(frame).is_err() {
                // The file is damaged from here on, or contains something else.
                self.crc = before;
                self.checkpoints.truncate(known);
                break;
            }
            end += length;
        }
        if end == 0 && !frames::may_begin(&self.output)? {
            return Err(io::Error::other("it is not an incomplete download: choose another name"));
        }
        self.cut_at = Some(end);
        Ok(())
    }

    /// Removes what follows the last complete frame of an earlier process.
    fn cut_incomplete(&mut self) -> io::Result<()> {
        let Some(end) = self.cut_at.take() else {
            return Ok(());
        };
        self.output.set_len(end)?;
        self.output.seek(SeekFrom::Start(end)).map(drop)
    }

    fn read_frame(&mut self, frame: Bytes) -> Result<(), datapath::error::Error> {
        let mut decoded = frames::decode_frame(frame);
        let checkpoints = &mut self.checkpoints;
        while let Some(bytes) = decoded.next_chunk()? {
            self.crc.add_part(as_extent(bytes), |checkpoint| checkpoints.push(checkpoint));
        }
        Ok(())
    }

    /// Appends the next bytes of the disk.
    pub(crate) fn append(&mut self, bytes: Bytes) -> Result<(), DownloadError> {
        self.is_unproven = false;
        self.cut_incomplete().map_err(|error| self.error("truncate", error))?;
        let part = as_extent(bytes);
        let written = match &part {
            LocalExtent::Hole(bytes) => {
                self.zeros += bytes;
                Ok(())
            }
            LocalExtent::Data(bytes) => {
                let piece = bytes.clone();
                self.write_zeros().and_then(|()| self.write_data(piece))
            }
        };
        written.map_err(|error| self.error("write", error))?;
        let checkpoints = &mut self.checkpoints;
        self.crc.add_part(part, |checkpoint| checkpoints.push(checkpoint));
        Ok(())
    }

    fn write_data(&mut self, mut bytes: Bytes) -> io::Result<()> {
        if self.encoder.is_some() {
            while !bytes.is_empty() {
                let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
                self.write_piece(VolumePiece::Data(piece))?;
            }
            return Ok(());
        }
        if !self.is_file() {
            return self.output.write_all(&bytes);
        }
        let offset = self.position();
        for run in data_runs(offset, [&bytes[..]].into_iter()) {
            self.output.seek(SeekFrom::Start(offset + run.start as u64))?;
            self.output.write_all(&bytes[run])?;
        }
        Ok(())
    }

    fn write_piece(&mut self, piece: VolumePiece) -> io::Result<()> {
        let blocks = self.encoder.as_mut().map(|encoder| encoder.encode_piece(piece, true));
        for block in blocks.into_iter().flatten() {
            self.output.write_all(&block.head)?;
            self.output.write_all(&block.body)?;
        }
        Ok(())
    }

    /// Writes the zeros before the current position. In a raw file they become a hole when the
    /// next data is written, or when the file gets its length.
    fn write_zeros(&mut self) -> io::Result<()> {
        let mut left = std::mem::take(&mut self.zeros);
        if self.is_raw_file() {
            return Ok(());
        }
        while left > 0 {
            let now = match &self.encoder {
                Some(_) => left.min(Encoding::ZstdFile.zeros_at_once()),
                None => left.min(ZEROS.len() as u64),
            };
            left -= now;
            match &self.encoder {
                Some(_) => self.write_piece(VolumePiece::Zeros(now))?,
                None => self.write_data(Bytes::from_static(
                    &ZEROS[..usize::try_from(now).unwrap_or(ZEROS.len())],
                ))?,
            }
        }
        Ok(())
    }

    /// Writes everything that was appended, at the end of an attempt.
    pub(crate) fn settle(&mut self) -> Result<(), DownloadError> {
        let settled = self.write_zeros().and_then(|()| match self.is_raw_file() {
            true => self.output.set_len(self.position()),
            false => self.output.flush(),
        });
        settled.map_err(|error| self.error("write", error))
    }

    fn is_raw_file(&self) -> bool {
        self.is_file() && self.encoder.is_none()
    }

    /// Removes everything after `kept`, or everything at all if the format does not allow more.
    /// Returns the new position.
    pub(crate) fn go_back_to(
        &mut self,
        kept: Option<DiskCheckpoint>,
    ) -> Result<u64, DownloadError> {
        if !self.is_file() {
            return Err(DownloadError::Pipe(self.position()));
        }
        if let Some(names) = self.names.as_ref().filter(|_| self.is_unproven && kept.is_none()) {
            return Err(DownloadError::Unrelated(names.partial.clone()));
        }
        self.is_unproven = false;
        self.cut_at = None;
        self.crc =
            kept.filter(|_| self.is_raw_file()).map_or_else(DiskCrc::default, DiskCrc::resume_at);
        self.zeros = 0;
        let end = self.position();
        self.checkpoints.retain(|known| known.end_offset() <= end);
        let cut = self.output.set_len(end).and_then(|()| self.output.seek(SeekFrom::Start(end)));
        cut.map_err(|error| self.error("truncate", error))?;
        Ok(end)
    }

    /// Writes the complete disk to the storage, and gives the file its name.
    pub(crate) fn finish(&mut self) -> Result<(), DownloadError> {
        self.cut_incomplete().map_err(|error| self.error("truncate", error))?;
        if self.is_file() {
            self.output.sync_all().map_err(|error| self.error("write", error))?;
        }
        let Some(names) = self.names.take() else {
            return Ok(());
        };
        names.check_absent()?;
        let renamed = unix::rename_new(&self.output, &names.partial, &names.complete);
        renamed.map_err(|error| DownloadError::local("create", &names.complete, error))
    }

    fn error(&self, action: &'static str, error: io::Error) -> DownloadError {
        let stdout = Path::new("stdout");
        let path = self.names.as_ref().map_or(stdout, |names| names.partial.as_path());
        DownloadError::local(action, path, error)
    }
}

/// Returns the bytes as a hole if all of them are zero. The checksum of a hole takes no time.
fn as_extent(bytes: Bytes) -> LocalExtent {
    match is_zero(&bytes) {
        true => LocalExtent::Hole(bytes.len() as u64),
        false => LocalExtent::Data(bytes),
    }
}

impl Drop for LocalDisk {
    /// Removes an incomplete file that contains nothing.
    fn drop(&mut self) {
        if let Some(names) = &self.names
            && self.output.metadata().is_ok_and(|metadata| metadata.len() == 0)
            && unix::is_name_of(&names.partial, &self.output)
        {
            // The file is harmless if it cannot be removed.
            std::fs::remove_file(&names.partial).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;
    use testkit::tools;

    use super::*;

    fn open(path: &Path, format: DiskFormat) -> LocalDisk {
        LocalDisk::open(path, format).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn the_file_contains_the_disk_whatever_the_parts_and_the_interruptions(
            parts in prop::collection::vec((any::<bool>(), 1_usize..700_000, any::<bool>()), 1..12),
            is_zstd in any::<bool>(),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("disk");
            let partial = FileNames::new(&path).partial;
            let format = if is_zstd { DiskFormat::RawZstd } else { DiskFormat::Raw };
            let mut disk = open(&path, format);
            let mut expected = Vec::new();
            for (is_data, length, is_interrupted) in parts {
                let start = expected.len();
                let mut bytes = vec![0; length];
                if is_data {
                    bytes = testkit::disk::content(start as u64, length as u64);
                    bytes[length / 3..length / 2].fill(0);
                }
                expected.extend_from_slice(&bytes);
                disk.append(bytes.into()).unwrap();
                if is_interrupted {
                    disk.settle().unwrap();
                    let before = disk.crc.checkpoint();
                    drop(disk);
                    if is_zstd {
                        // Killed processes leave incomplete frames.
                        let mut file = fs::OpenOptions::new().append(true).open(&partial).unwrap();
                        file.write_all(&[0x28, 0xB5, 0x2F, 0xFD, 0, 56, 1, 2]).unwrap();
                    }
                    disk = open(&path, format);
                    disk.read_left_behind(|| true).unwrap();
                    prop_assert_eq!(disk.crc.checkpoint(), before);
                }
            }
            disk.settle().unwrap();
            disk.finish().unwrap();
            let mut written = fs::read(&path).unwrap();
            if is_zstd {
                written = tools::filter("zstd", ["-dcq"], &written);
            }
            prop_assert!(written == expected);
            prop_assert!(!partial.exists());
        }
    }

    #[test]
    fn a_disk_that_differs_is_written_again_from_a_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let mut disk = open(&path, DiskFormat::Raw);
        disk.append(Bytes::from_static(b"equal")).unwrap();
        let kept = disk.checkpoint_at(5).unwrap();
        disk.append(Bytes::from_static(b"different")).unwrap();
        disk.settle().unwrap();
        assert_eq!(disk.checkpoint_at(7), None);
        assert_eq!(disk.go_back_to(Some(kept)).unwrap(), 5);
        disk.append(Bytes::from_static(b"\0\0\0")).unwrap();
        disk.settle().unwrap();
        disk.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"equal\0\0\0");
    }

    #[test]
    fn a_file_of_another_program_is_neither_truncated_nor_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let partial = FileNames::new(&path).partial;
        fs::write(&partial, "mine").unwrap();
        let mut disk = open(&path, DiskFormat::RawZstd);
        assert!(matches!(disk.read_left_behind(|| true), Err(DownloadError::Local { .. })));
        drop(disk);
        let mut disk = open(&path, DiskFormat::Raw);
        disk.read_left_behind(|| true).unwrap();
        assert!(matches!(disk.go_back_to(None), Err(DownloadError::Unrelated(_))));
        assert_eq!(fs::read(&partial).unwrap(), b"mine");
        // Another program replaces the file, and creates the complete one.
        fs::remove_file(&partial).unwrap();
        fs::write(&partial, "other").unwrap();
        assert!(matches!(disk.finish(), Err(DownloadError::Local { .. })));
        assert_eq!(fs::read(&partial).unwrap(), b"other");
        fs::write(&path, "complete").unwrap();
        let file = File::open(&partial).unwrap();
        unix::rename_new(&file, &partial, &path).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"complete");
    }

    #[test]
    fn existing_files_links_and_locked_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let refused = |name: &str| LocalDisk::open(&path(name), DiskFormat::Raw).err().unwrap();
        fs::write(path("mine"), "mine").unwrap();
        assert!(matches!(refused("mine"), DownloadError::Exists(_)));
        symlink("mine", path("link")).unwrap();
        assert!(matches!(refused("link"), DownloadError::Exists(_)));
        symlink(path("mine"), path("a.partial")).unwrap();
        assert!(matches!(refused("a"), DownloadError::Local { .. }));
        fs::hard_link(path("mine"), path("b.partial")).unwrap();
        assert!(matches!(refused("b"), DownloadError::NoFile(_)));
        fs::create_dir(path("c.partial")).unwrap();
        assert!(matches!(refused("c"), DownloadError::Local { .. }));
        let _held = open(&path("d"), DiskFormat::Raw);
        assert!(matches!(refused("d"), DownloadError::Busy(_)));
        assert!(matches!(refused("none/e"), DownloadError::Local { .. }));
        assert_eq!(fs::read(path("mine")).unwrap(), b"mine");
    }
}
