//! A qcow2 image that is written in the order of the disk.
//!
//! The incomplete file contains clusters and tables at their final offsets. Where a complete image
//! has its header, it has a mark: how much of the disk it contains. Another process needs nothing
//! else to resume. No program takes the file for an image, because the header is written last.
//! The file of an earlier process is not trusted: [`Qcow2Writer::replay`] checks each entry of the
//! tables, and the data is compared with the volume.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use bytes::Bytes;
use codec::encode::outgoing::PieceKind;
use codec::encode::qcow2::append_piece;
use codec::encode::{EncodedPiece, Encoding, PieceEncoder, VolumePiece};
use codec::inflate::Inflater;
use diskimage::qcow2::{
    ImageSink, IncompleteImage, Qcow2Compression, Qcow2Writer, WRITTEN_CLUSTER_BYTES,
};
use diskimage::{ClusterCompression, CompressedClusters, GuestRange, Host};
use stream::local::{LocalExtent, read_exact_at};

use super::connection::MAX_DISK_BYTES;

#[allow(clippy::cast_possible_truncation, reason = "64 KiB")]
const CLUSTER_BYTES: usize = WRITTEN_CLUSTER_BYTES as usize;

/// Bytes of the disk that are encoded at once: whole clusters, about as many as arrive at once.
const BLOCK_BYTES: usize = 4 * CLUSTER_BYTES;

/// Distance on the disk between two updates of the mark. A killed process loses at most this much.
/// An update writes less than 1 KiB.
const MARKED_BYTES: u64 = 4 << 20;

/// The first bytes of a complete image, and the position of its size (qcow2.txt, "Header").
const IMAGE_MAGIC: [u8; 4] = *b"QFI\xfb";
const SIZE_AT: usize = 24;

/// Position and number of the refcount table in the header. They depend on the last cluster.
const REFCOUNTS_AT: std::ops::Range<usize> = 48..60;

/// The first bytes of the mark.
const MAGIC: [u8; 8] = *b"CDIqcow2";

/// The mark of an incomplete image. It is shorter than the header that replaces it.
struct ImageMark {
    /// The size of the disk in bytes.
    size: u64,
    /// The number of bytes that the tables cover.
    position: u64,
    compression: Qcow2Compression,
}

impl ImageMark {
    fn to_bytes(&self) -> Bytes {
        let compression = Qcow2Compression::ALL.iter().position(|known| *known == self.compression);
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.size.to_be_bytes());
        bytes.extend_from_slice(&self.position.to_be_bytes());
        bytes.push(compression.and_then(|index| index.try_into().ok()).unwrap_or(0));
        bytes.into()
    }

    /// Returns the mark that an image with a header had. Its last incomplete cluster is left out.
    fn of_complete(bytes: &[u8], compression: Qcow2Compression) -> Option<Self> {
        let (size, _) = bytes.get(SIZE_AT..)?.split_first_chunk()?;
        let size = u64::from_be_bytes(*size);
        let position = size - size % WRITTEN_CLUSTER_BYTES;
        let is_image = bytes.starts_with(&IMAGE_MAGIC) && size <= MAX_DISK_BYTES;
        is_image.then_some(Self { size, position, compression })
    }

    /// Returns `None` if these are not the bytes of a mark.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk()?;
        let (position, rest) = rest.split_first_chunk()?;
        let mark = Self {
            size: u64::from_be_bytes(*size),
            position: u64::from_be_bytes(*position),
            compression: *Qcow2Compression::ALL.get(usize::from(*rest.first()?))?,
        };
        (*magic == MAGIC && mark.size <= MAX_DISK_BYTES).then_some(mark)
    }
}

/// An image, and the part of the disk that is not in it yet.
pub(super) struct Qcow2File {
    output: ImageOutput,
    compression: Qcow2Compression,
    encoder: PieceEncoder,
    /// `None` before the size of the disk is known.
    image: Option<SizedImage>,
    /// The bytes of the disk after those in the image.
    pending: Vec<u8>,
}

struct SizedImage {
    writer: Qcow2Writer,
    /// The size of the disk in bytes.
    size: u64,
    /// The position in the mark.
    marked: u64,
}

impl Qcow2File {
    pub(super) fn new(file: File, compression: Qcow2Compression) -> Self {
        Self {
            output: ImageOutput { file, is_read_only: false, header: None },
            compression,
            encoder: Encoding::Qcow2(compression).new_encoder(),
            image: None,
            pending: Vec::with_capacity(BLOCK_BYTES),
        }
    }

    /// True if the image was begun, and contains nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.image.as_ref().is_some_and(|image| image.writer.position() == 0)
    }

    /// The size of the disk, once the image was begun.
    pub(super) fn disk_bytes(&self) -> Option<u64> {
        self.image.as_ref().map(|image| image.size)
    }

    /// Begins an image of a disk of `size` bytes in the empty file.
    pub(super) fn begin(&mut self, size: u64) -> io::Result<()> {
        self.restore(size, 0).map_err(to_io_error)
    }

    /// Reads the image that an earlier process has left, and passes the parts of its disk to
    /// `passed`, until that returns false. Drops everything after the first damaged cluster.
    pub(super) fn read_left_behind(
        &mut self,
        mut passed: impl FnMut(LocalExtent) -> bool,
    ) -> io::Result<()> {
        if self.output.file.metadata()?.len() == 0 {
            return Ok(());
        }
        let unrelated =
            || io::Error::other("it is not an incomplete download: choose another name");
        let mut bytes = [0; SIZE_AT + 8];
        read_exact_at(&self.output.file, &mut bytes, 0).map_err(|_| unrelated())?;
        // The earlier process may have ended between the header and the name.
        let complete = ImageMark::of_complete(&bytes, self.compression);
        let is_complete = complete.is_some();
        let mark = complete.or_else(|| ImageMark::parse(&bytes)).ok_or_else(unrelated)?;
        if mark.compression != self.compression {
            let words =
                format!("it was begun with --compression {}: give the same", mark.compression);
            return Err(io::Error::other(words));
        }
        let (mut position, mut is_wanted) = (0, true);
        let mut pass = |part, bytes: u64| {
            position += bytes;
            is_wanted &= passed(part);
            if is_wanted { Ok(()) } else { Err(SinkError::from("stopped")) }
        };
        let mut reader = ClusterReader::new(self.compression);
        self.output.is_read_only = true;
        let mut scan = |output: &mut ImageOutput| -> Result<(), SinkError> {
            let mut next = 0;
            let mut writer = Qcow2Writer::new(self.compression, Some(mark.size), output)?;
            writer.replay(mark.position, output, |output, range| {
                let cluster = reader.read_cluster(&output.file, range)?;
                let hole = range.guest.0 - next;
                next = range.guest.0 + WRITTEN_CLUSTER_BYTES;
                if hole > 0 {
                    pass(LocalExtent::Hole(hole), hole)?;
                }
                pass(LocalExtent::Data(cluster), WRITTEN_CLUSTER_BYTES)
            })?;
            match mark.position - next {
                0 => {}
                hole => pass(LocalExtent::Hole(hole), hole)?,
            }
            if is_complete {
                writer.finish(mark.size, output)?;
                output.check_header()?;
            }
            Ok(())
        };
        let scanned = scan(&mut self.output);
        self.output.is_read_only = false;
        match scanned {
            _ if !is_wanted => return Ok(()),
            Err(_) if is_complete => return Err(unrelated()),
            Err(error) => {
                tracing::warn!("dropping what follows byte {position} of the disk: {error}");
            }
            Ok(()) => {}
        }
        self.restore(mark.size, position).map_err(to_io_error)
    }

    /// Restores the writer of an image that contains at least `end` bytes of the disk, and cuts
    /// the file behind them.
    fn restore(&mut self, size: u64, end: u64) -> Result<(), SinkError> {
        let output = &mut self.output;
        let mut writer = Qcow2Writer::new(self.compression, Some(size), output)?;
        // This also writes the counts of references again, which nobody has checked.
        writer.replay(end, output, |_, _| Ok(()))?;
        self.pending.clear();
        self.output.file.set_len(writer.image_bytes())?;
        self.image = Some(SizedImage { writer, size, marked: end });
        self.write_mark()
    }

    /// Keeps only the first `end` bytes of the disk. Returns how many are kept: none if the image
    /// does not have as many in whole clusters.
    pub(super) fn go_back_to(&mut self, end: u64) -> io::Result<u64> {
        let kept = self.image.as_ref().filter(|image| {
            end > 0 && end <= image.marked && end.is_multiple_of(WRITTEN_CLUSTER_BYTES)
        });
        match kept.map(|image| image.size) {
            Some(size) => self.restore(size, end).map(|()| end).map_err(to_io_error),
            None => {
                self.image = None;
                self.pending.clear();
                self.output.file.set_len(0).map(|()| 0)
            }
        }
    }

    /// Appends the next part of the disk.
    pub(super) fn append(&mut self, part: &LocalExtent) -> io::Result<()> {
        match part {
            LocalExtent::Hole(bytes) => self.append_zeros(*bytes),
            LocalExtent::Data(bytes) => self.append_data(bytes),
        }
        .map_err(to_io_error)
    }

    fn append_data(&mut self, mut bytes: &[u8]) -> Result<(), SinkError> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.pending.len()));
            self.pending.extend_from_slice(now);
            if self.pending.len() == BLOCK_BYTES {
                self.write_pending()?;
            }
            bytes = later;
        }
        Ok(())
    }

    fn append_zeros(&mut self, mut count: u64) -> Result<(), SinkError> {
        if !self.pending.is_empty() {
            let whole = self.pending.len().next_multiple_of(CLUSTER_BYTES);
            let now = usize::try_from(count).unwrap_or(usize::MAX).min(whole - self.pending.len());
            self.pending.resize(self.pending.len() + now, 0);
            count -= now as u64;
            if self.pending.len() == whole {
                self.write_pending()?;
            }
        }
        if self.pending.is_empty()
            && let Some(image) = &mut self.image
        {
            let rest = count % WRITTEN_CLUSTER_BYTES;
            image.writer.append_zeros(count - rest);
            self.pending.resize(usize::try_from(rest).unwrap_or(0), 0);
        }
        self.write_pending()
    }

    /// Writes the whole clusters that are pending, and updates the mark from time to time.
    fn write_pending(&mut self) -> Result<(), SinkError> {
        let Some(image) = &mut self.image else {
            return Err("the size of the disk is not known".into());
        };
        let whole = self.pending.len() - self.pending.len() % CLUSTER_BYTES;
        if whole > 0 {
            let mut next = Vec::with_capacity(BLOCK_BYTES);
            next.extend_from_slice(&self.pending[whole..]);
            self.pending.truncate(whole);
            let bytes = std::mem::replace(&mut self.pending, next);
            let parts = self.encoder.encode_piece(VolumePiece::Data(bytes.into()), true);
            let piece = EncodedPiece { parts, length: whole as u64, kind: PieceKind::Squeezed };
            append_piece(piece, &mut image.writer, &mut self.output)?;
        }
        if image.writer.position() - image.marked < MARKED_BYTES {
            return Ok(());
        }
        self.write_mark()
    }

    fn write_mark(&mut self) -> Result<(), SinkError> {
        let Some(image) = &mut self.image else {
            return Ok(());
        };
        image.writer.flush_tables(&mut self.output)?;
        image.marked = image.writer.position();
        let mark =
            ImageMark { size: image.size, position: image.marked, compression: self.compression };
        self.output.write_bytes(0, &mark.to_bytes()).map_err(SinkError::from)
    }

    /// Writes everything except the last incomplete cluster, so that another process can resume.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        self.write_pending().and_then(|()| self.write_mark()).map_err(to_io_error)
    }

    /// Completes the image.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let padded = self.pending.len().next_multiple_of(CLUSTER_BYTES);
        self.pending.resize(padded, 0);
        self.write_pending().map_err(to_io_error)?;
        let Some(SizedImage { writer, size, .. }) = self.image.take() else {
            return Ok(());
        };
        let length = writer.finish(size, &mut self.output).map_err(to_io_error)?;
        self.output.file.set_len(length)?;
        // Even after a power failure, an image with a header is complete.
        self.output.file.sync_all()?;
        let header = self.output.header.take().unwrap_or_default();
        self.output.write_bytes(0, &header)
    }
}

/// An I/O error, or an error of the writer.
type SinkError = Box<dyn Error + Send + Sync>;

fn to_io_error(error: SinkError) -> io::Error {
    error.downcast().map_or_else(io::Error::other, |error| *error)
}

/// The file of an image.
struct ImageOutput {
    file: File,
    /// True if writes are ignored.
    is_read_only: bool,
    /// The header, which is written after everything else has reached the storage.
    header: Option<Bytes>,
}

impl ImageOutput {
    /// Fails unless the file has the header that would be written.
    fn check_header(&mut self) -> Result<(), SinkError> {
        let mut expected = self.header.take().unwrap_or_default().to_vec();
        let mut found = vec![0; expected.len()];
        read_exact_at(&self.file, &mut found, 0)?;
        for header in [&mut expected, &mut found] {
            header.get_mut(REFCOUNTS_AT).unwrap_or_default().fill(0);
        }
        if found == expected { Ok(()) } else { Err("another program wrote the header".into()) }
    }

    fn write_bytes(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(offset))?;
        self.file.write_all(bytes)
    }
}

impl ImageSink for ImageOutput {
    type Error = SinkError;

    fn write_at(&mut self, host: Host, bytes: Bytes) -> Result<(), SinkError> {
        if host == Host(0) {
            self.header = Some(bytes);
            return Ok(());
        }
        if self.is_read_only {
            return Ok(());
        }
        Ok(self.write_bytes(host.0, &bytes)?)
    }
}

impl IncompleteImage for ImageOutput {
    fn read_at(&mut self, host: Host, bytes: &mut [u8]) -> Result<(), SinkError> {
        Ok(read_exact_at(&self.file, bytes, host.0)?)
    }
}

/// Reads and inflates clusters.
struct ClusterReader {
    clusters: CompressedClusters,
    inflater: Inflater,
    stored: Vec<u8>,
}

impl ClusterReader {
    fn new(compression: Qcow2Compression) -> Self {
        let compression = match compression {
            Qcow2Compression::None | Qcow2Compression::Zlib => ClusterCompression::Deflate,
            Qcow2Compression::Zstd => ClusterCompression::Zstd,
        };
        let clusters = CompressedClusters { compression, size: WRITTEN_CLUSTER_BYTES };
        Self { clusters, inflater: Inflater::default(), stored: Vec::new() }
    }

    fn read_cluster(&mut self, file: &File, range: GuestRange) -> Result<Bytes, SinkError> {
        let mut cluster = vec![0; CLUSTER_BYTES];
        if !range.is_compressed {
            read_exact_at(file, &mut cluster, range.host.0)?;
            return Ok(cluster.into());
        }
        // The last compressed cluster ends before the end of its sector.
        let mut reader = file;
        reader.seek(SeekFrom::Start(range.host.0))?;
        self.stored.clear();
        reader.take(range.stored_bytes).read_to_end(&mut self.stored)?;
        let Self { clusters, inflater, stored } = self;
        inflater.inflate_cluster(*clusters, range.guest, stored, &mut cluster, CLUSTER_BYTES)?;
        Ok(cluster.into())
    }
}
