//! The disk on this machine: a file that gets its name when it is complete, or a pipe.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use bytes::Bytes;
use codec::encode::{Encoding, PIECE_BYTES, PieceEncoder, VolumePiece};
use crc_fast::CrcAlgorithm;
use diskimage::qcow2::Qcow2Compression;
use stream::chunks::ChunkStream;
use stream::local::{LocalExtent, LocalFile};
use stream::prefix_crc::{PrefixCrc, RunningCrc};
use stream::zeros::{ZEROS, data_runs, is_zero};

use super::frames::{self, FrameReader};
use super::names::{FileNames, local_error};
use super::qcow2::Qcow2File;
use super::unix;
use crate::error::PluginError;

/// The format of the written disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskFormat {
    /// The bytes of the disk; zeros become holes.
    Raw,
    /// The bytes of the disk, compressed as zstd frames.
    RawZstd,
    /// A qcow2 image.
    Qcow2(Qcow2Compression),
}

/// The state of the format that is written.
enum DiskBody {
    Raw,
    RawZstd(PieceEncoder),
    Qcow2(Box<Qcow2File>),
}

/// A disk that is written from its first byte to its last.
pub(crate) struct LocalDisk {
    output: File,
    /// The names of the file; `None` for a pipe.
    names: Option<FileNames>,
    body: DiskBody,
    crc: RunningCrc,
    /// The checksums up to the current position, in ascending order.
    prefixes: Vec<PrefixCrc>,
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
    pub(crate) fn open(path: &Path, format: DiskFormat) -> Result<Self, PluginError> {
        let (output, names) = if path == Path::new("-") {
            let stdout = unix::unbuffered_stdout();
            (stdout.map_err(|error| local_error("open", path, &error))?, None)
        } else {
            let names = FileNames::new(path);
            (names.open_partial()?, Some(names))
        };
        let body = match format {
            DiskFormat::Raw => DiskBody::Raw,
            DiskFormat::RawZstd => DiskBody::RawZstd(Encoding::ZstdFile.new_encoder()),
            DiskFormat::Qcow2(compression) => {
                let image = output.try_clone();
                let image = image.map_err(|error| local_error("open", path, &error))?;
                DiskBody::Qcow2(Box::new(Qcow2File::new(image, compression)))
            }
        };
        Ok(Self {
            output,
            names,
            body,
            crc: RunningCrc::default(),
            prefixes: Vec::new(),
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

    /// Returns the checksum at this offset, if it is known.
    pub(crate) fn prefix_at(&self, end: u64) -> Option<PrefixCrc> {
        if end == self.position() {
            return Some(self.crc.checksum());
        }
        let found = self.prefixes.binary_search_by_key(&end, |known| known.end_offset());
        self.prefixes.get(found.ok()?).copied()
    }

    /// Reads what an earlier process has left in the file. Stops early if `is_wanted` returns
    /// false.
    pub(crate) fn read_left_behind(
        &mut self,
        is_wanted: impl Fn() -> bool,
    ) -> Result<(), PluginError> {
        if !self.is_file() {
            return Ok(());
        }
        let reading = match &mut self.body {
            DiskBody::Raw => self.read_partial(is_wanted),
            DiskBody::RawZstd(_) => self.read_frames(is_wanted),
            DiskBody::Qcow2(image) => {
                let (crc, prefixes) = (&mut self.crc, &mut self.prefixes);
                image.read_left_behind(|part| {
                    crc.add_part(part, |prefix| prefixes.push(prefix));
                    is_wanted()
                })
            }
        };
        reading.map_err(|error| self.error("read", &error))?;
        self.is_unproven = self.position() > 0;
        Ok(())
    }

    fn read_partial(&mut self, is_wanted: impl Fn() -> bool) -> io::Result<()> {
        let local = LocalFile::new(self.output.try_clone()?)?;
        let prefixes = &mut self.prefixes;
        self.crc.read_until(&local, local.size(), |prefix| {
            prefixes.push(prefix);
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
            let (before, known) = (self.crc.clone(), self.prefixes.len());
            if self.read_frame(frame).is_err() {
                // The file is damaged from here on, or contains something else.
                self.crc = before;
                self.prefixes.truncate(known);
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

    fn read_frame(&mut self, frame: Bytes) -> Result<(), stream::error::Error> {
        let mut decoded = frames::decode_frame(frame);
        let prefixes = &mut self.prefixes;
        while let Some(bytes) = decoded.next_chunk()? {
            self.crc.add_part(as_extent(bytes), |prefix| prefixes.push(prefix));
        }
        Ok(())
    }

    /// Prepares the file for a disk of `size` bytes, before anything is appended.
    pub(crate) fn begin(&mut self, size: u64) -> Result<(), PluginError> {
        let DiskBody::Qcow2(image) = &self.body else {
            return Ok(());
        };
        let before = image.disk_bytes();
        if before == Some(size) {
            return Ok(());
        }
        if before.is_some() {
            // The tables before the data are made for one size.
            self.go_back_to(None)?;
        }
        if let DiskBody::Qcow2(image) = &mut self.body {
            image.begin(size).map_err(|error| self.error("write", &error))?;
        }
        Ok(())
    }

    /// Appends the next bytes of the disk.
    pub(crate) fn append(&mut self, bytes: Bytes) -> Result<(), PluginError> {
        self.is_unproven = false;
        self.cut_incomplete().map_err(|error| self.error("truncate", &error))?;
        let part = as_extent(bytes);
        let written = match (&mut self.body, &part) {
            (DiskBody::Qcow2(image), part) => image.append(part),
            (_, LocalExtent::Hole(bytes)) => {
                self.zeros += bytes;
                Ok(())
            }
            (_, LocalExtent::Data(bytes)) => {
                let piece = bytes.clone();
                self.write_zeros().and_then(|()| self.write_data(piece))
            }
        };
        written.map_err(|error| self.error("write", &error))?;
        let prefixes = &mut self.prefixes;
        self.crc.add_part(part, |prefix| prefixes.push(prefix));
        Ok(())
    }

    fn write_data(&mut self, mut bytes: Bytes) -> io::Result<()> {
        if matches!(self.body, DiskBody::RawZstd(_)) {
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
        let DiskBody::RawZstd(encoder) = &mut self.body else {
            return Ok(());
        };
        for part in encoder.encode_piece(piece, true) {
            self.output.write_all(&part)?;
        }
        Ok(())
    }

    /// Writes the zeros before the current position. In a raw file they become a hole when the
    /// next data is written, or when the file gets its length.
    fn write_zeros(&mut self) -> io::Result<()> {
        let mut left = std::mem::take(&mut self.zeros);
        if self.is_file() && matches!(self.body, DiskBody::Raw) {
            return Ok(());
        }
        while left > 0 {
            let is_zstd = matches!(self.body, DiskBody::RawZstd(_));
            let most =
                if is_zstd { Encoding::ZstdFile.zeros_at_once() } else { ZEROS.len() as u64 };
            let now = left.min(most);
            left -= now;
            if is_zstd {
                self.write_piece(VolumePiece::Zeros(now))?;
            } else {
                let length = usize::try_from(now).unwrap_or(ZEROS.len());
                self.write_data(Bytes::from_static(&ZEROS[..length]))?;
            }
        }
        Ok(())
    }

    /// Writes everything that was appended, at the end of an attempt.
    pub(crate) fn settle(&mut self) -> Result<(), PluginError> {
        let end = self.position();
        let settled = self.write_zeros().and_then(|()| match &mut self.body {
            DiskBody::Raw if self.names.is_some() => self.output.set_len(end),
            DiskBody::Raw | DiskBody::RawZstd(_) => self.output.flush(),
            DiskBody::Qcow2(image) => image.settle(),
        });
        settled.map_err(|error| self.error("write", &error))
    }

    /// Removes everything after `kept`, or everything at all if the format does not allow more.
    /// Returns the new position.
    pub(crate) fn go_back_to(&mut self, kept: Option<PrefixCrc>) -> Result<u64, PluginError> {
        if !self.is_file() {
            return Err(PluginError::unread(format!(
                "the disk has changed since its first {} bytes were written to the pipe: download again",
                self.position()
            )));
        }
        if let Some(names) = self.names.as_ref().filter(|_| self.is_unproven && kept.is_none()) {
            return Err(PluginError::target(format!(
                "{} is not the beginning of this disk: delete it, or choose another name",
                names.partial.display()
            )));
        }
        self.is_unproven = false;
        self.cut_at = None;
        let wanted = kept.map_or(0, PrefixCrc::end_offset);
        let cut = match &mut self.body {
            DiskBody::Raw => Ok(wanted),
            DiskBody::RawZstd(_) => Ok(0),
            DiskBody::Qcow2(image) => image.go_back_to(wanted),
        };
        let end = cut.map_err(|error| self.error("truncate", &error))?;
        self.crc = kept.filter(|_| end > 0).map_or_else(RunningCrc::default, RunningCrc::resume_at);
        self.zeros = 0;
        self.prefixes.retain(|known| known.end_offset() <= end);
        if !matches!(self.body, DiskBody::Qcow2(_)) {
            let cut =
                self.output.set_len(end).and_then(|()| self.output.seek(SeekFrom::Start(end)));
            cut.map_err(|error| self.error("truncate", &error))?;
        }
        Ok(end)
    }

    /// Writes the complete disk to the storage, and gives the file its name.
    pub(crate) fn finish(&mut self) -> Result<(), PluginError> {
        self.cut_incomplete().map_err(|error| self.error("truncate", &error))?;
        if let DiskBody::Qcow2(image) = &mut self.body {
            image.finish().map_err(|error| self.error("write", &error))?;
        }
        if self.is_file() {
            self.output.sync_all().map_err(|error| self.error("write", &error))?;
        }
        let Some(names) = self.names.take() else {
            return Ok(());
        };
        names.check_absent()?;
        let renamed = unix::rename_new(&self.output, &names.partial, &names.complete);
        renamed.map_err(|error| local_error("create", &names.complete, &error))
    }

    fn error(&self, action: &str, error: &io::Error) -> PluginError {
        let stdout = Path::new("stdout");
        let path = self.names.as_ref().map_or(stdout, |names| names.partial.as_path());
        local_error(action, path, error)
    }
}

/// Returns the bytes as a hole if all of them are zero. The checksum of a hole takes no time.
fn as_extent(bytes: Bytes) -> LocalExtent {
    if is_zero(&bytes) { LocalExtent::Hole(bytes.len() as u64) } else { LocalExtent::Data(bytes) }
}

impl Drop for LocalDisk {
    /// Removes an incomplete file that contains nothing.
    fn drop(&mut self) {
        if matches!(&self.body, DiskBody::Qcow2(image) if image.is_empty()) {
            self.output.set_len(0).ok();
        }
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
mod tests;
