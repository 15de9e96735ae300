//! Verifies the checksum of the image on another thread, while the image is read for the upload.

use std::io;

use bytes::Bytes;
use stream::buffer::CHUNK_BYTES;
use stream::digest::{Checksum, ChecksumMismatchError, HashingThread};
use stream::error::ThreadStartError;
use stream::local::{LocalExtent, LocalFile};
use stream::zeros::ZEROS;

/// The comparison of a file with the checksum that the user expects. All streams of an upload
/// share it, so that each byte is hashed once.
pub(crate) struct ContentCheck {
    expected: Checksum,
    /// Number of bytes at the beginning of the file that were hashed.
    end_offset: u64,
    /// `None` if the whole file was hashed.
    thread: Option<HashingThread>,
    /// The digest of the whole file; empty until then.
    calculated: String,
}

impl ContentCheck {
    /// Starts the thread that hashes. Nothing is hashed yet.
    pub(crate) fn start(expected: Checksum) -> Result<Self, ThreadStartError> {
        let thread = Some(HashingThread::start(expected.algorithm())?);
        Ok(Self { expected, end_offset: 0, thread, calculated: String::new() })
    }

    /// Returns true if everything before `offset` was hashed.
    pub(crate) fn has_hashed(&self, offset: u64) -> bool {
        self.end_offset >= offset
    }

    /// Hashes the rest of `file`, and compares its digest with the expected checksum.
    pub(crate) fn finish(
        &mut self,
        file: &LocalFile,
    ) -> io::Result<Result<(), ChecksumMismatchError>> {
        let mut reader = file.chunk_reader(CHUNK_BYTES);
        reader.skip_to(self.end_offset);
        while let Some(extent) = reader.next_part()? {
            self.add_extent(self.end_offset, &extent);
        }
        if let Some(thread) = self.thread.take() {
            self.calculated = thread.finish_digest();
        }
        Ok(self.expected.verify(&self.calculated))
    }

    /// Hashes a part of the file that begins at `offset`, as far as it is not hashed yet. Ignores
    /// a part that lies behind a gap; [`finish`](Self::finish) reads it again.
    pub(crate) fn add_extent(&mut self, offset: u64, extent: &LocalExtent) {
        let (Some(thread), Some(known)) = (&self.thread, self.end_offset.checked_sub(offset))
        else {
            return;
        };
        match extent {
            LocalExtent::Data(bytes) => {
                let known = usize::try_from(known).unwrap_or(usize::MAX).min(bytes.len());
                let new = bytes.slice(known..);
                self.end_offset += new.len() as u64;
                thread.update(&new);
            }
            LocalExtent::Hole(length) => {
                let mut left = length.saturating_sub(known);
                self.end_offset += left;
                while left > 0 {
                    let step = left.min(ZEROS.len() as u64);
                    let zeros = usize::try_from(step).ok().and_then(|step| ZEROS.get(..step));
                    thread.update(&Bytes::from_static(zeros.unwrap_or_default()));
                    left -= step;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use stream::digest::{DigestAlgorithm, RunningDigest};

    use super::*;

    #[test]
    fn every_byte_is_hashed_once_however_the_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let mut content = testkit::disk::content(1, 3 << 20);
        content[1 << 20..2 << 20].fill(0);
        testkit::disk::write_sparse(&path, &content);
        let open = || LocalFile::new(std::fs::File::open(&path).unwrap()).unwrap();
        let mut digest = RunningDigest::new(DigestAlgorithm::Sha256);
        digest.update(&content);
        let expected: Checksum = digest.finish_digest().parse().unwrap();
        // The offsets at which streams begin. A stream that begins behind a gap is ignored.
        for starts in [&[][..], &[0], &[0, 5, 1 << 20, 3 << 20], &[7], &[2 << 20, 0], &[0, 0]] {
            let mut check = ContentCheck::start(expected.clone()).unwrap();
            for (number, start) in starts.iter().enumerate() {
                let file = open();
                let mut reader = file.chunk_reader(CHUNK_BYTES);
                reader.skip_to(*start);
                let mut parts = 0;
                loop {
                    let offset = reader.position();
                    let Some(extent) = reader.next_part().unwrap() else { break };
                    check.add_extent(offset, &extent);
                    parts += 1;
                    // All but the last stream are cut.
                    if number + 1 < starts.len() && parts == 4 {
                        break;
                    }
                }
            }
            for _ in 0..2 {
                assert_eq!(check.finish(&open()).unwrap(), Ok(()), "{starts:?}");
            }
            assert!(check.has_hashed(3 << 20));
        }
        let other = ContentCheck::start(format!("md5:{}", "0".repeat(32)).parse().unwrap());
        let said = other.unwrap().finish(&open()).unwrap().unwrap_err().to_string();
        assert!(said.starts_with("checksum mismatch: expected md5:000"), "{said}");
    }
}
