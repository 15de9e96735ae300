//! Makes, compares and measures the content of disks.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::fail::OrFail;
use crate::random::Random;

/// Size of a block when written data is counted: a page, and the usual file system block.
pub const BLOCK_BYTES: u64 = 4096;

/// Bytes that are compared at a time.
const WINDOW_BYTES: u64 = 1 << 20;

/// The jump instruction at the start of a boot sector. No text begins with it.
const BOOT_JUMP: [u8; 3] = [0xEB, 0x63, 0x90];

/// Returns bytes that resemble a file system: the start of a boot sector, then runs of 512 B to 64
/// KiB that are text, noise or one repeated byte. No block is zero.
pub fn content(seed: u64, length: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = vec![0; to_usize(length)];
    let mut rest = bytes.as_mut_slice();
    while !rest.is_empty() {
        let run = to_usize(512 << random.below(8)).min(rest.len());
        let (this, next) = rest.split_at_mut(run);
        match random.below(4) {
            0 => random.fill(this),
            1 => this.fill(1 + random.bits().to_le_bytes()[0] % 255),
            _ => fill_with_text(&mut random, this),
        }
        rest = next;
    }
    bytes.iter_mut().zip(BOOT_JUMP).for_each(|(place, byte)| *place = byte);
    bytes
}

/// Fills `bytes` with lines like those of a log. They compress by a factor of about four, as the
/// files of an operating system do.
fn fill_with_text(random: &mut Random, bytes: &mut [u8]) {
    const WORDS: [&str; 8] =
        ["kernel", "started", "unit", "disk", "error", "eth0", "systemd", "session"];
    let mut line = String::new();
    for chunk in bytes.chunks_mut(64) {
        line.clear();
        while line.len() < chunk.len() {
            let word = WORDS[to_usize(random.below(8))];
            line.push_str(&format!("{word}[{}]: ", random.below(10_000)));
        }
        chunk.copy_from_slice(&line.as_bytes()[..chunk.len()]);
    }
}

/// Returns a disk of `length` bytes of which about one in `one_in` is data, in islands of 512
/// bytes to 256 KiB whose edges are multiples of 512 only. The disk begins with an island, as a
/// boot disk does.
pub fn sparse_content(seed: u64, length: u64, one_in: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = vec![0; to_usize(length)];
    let mut offset = 0;
    while offset < length {
        let run = (512 << random.below(10)).min(length - offset);
        let island = content(random.bits(), run);
        bytes[to_usize(offset)..to_usize(offset + run)].copy_from_slice(&island);
        offset += run + 512 * random.below((one_in - 1) * run / 256 + 1);
    }
    bytes
}

/// Writes `content` to the file `path`, leaving holes for blocks of zeros.
pub fn write_sparse(path: &Path, content: &[u8]) {
    let file = File::create(path).or_fail(path.display());
    file.set_len(content.len() as u64).or_fail(path.display());
    for (index, block) in content.chunks(to_usize(BLOCK_BYTES)).enumerate() {
        if block.iter().any(|byte| *byte != 0) {
            file.write_all_at(block, index as u64 * BLOCK_BYTES).or_fail(path.display());
        }
    }
}

/// Bytes that a file occupies on its disk.
pub fn allocated_bytes(path: &Path) -> u64 {
    // `st_blocks` counts units of 512 bytes, whatever the file system's block size (stat(2)).
    path.metadata().or_fail(path.display()).blocks() * 512
}

/// The local file header of a zip (APPNOTE 4.3.7), for a deflated `disk.img`.
pub const ZIP_HEADER: [u8; 38] =
    *b"PK\x03\x04\x14\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x08\0\0\0disk.img";

/// The smallest ISO image in a Debian package that tests may use.
pub fn iso() -> PathBuf {
    let path = PathBuf::from("/usr/lib/memtest86+/memtest86+x64.iso");
    assert!(path.is_file(), "this test needs {}: apt-get install memtest86+", path.display());
    path
}

/// Returns the first offset in `range` at which the two files or devices differ. If one of them
/// ends early, its end is a difference.
pub fn first_difference(left: &Path, right: &Path, range: Range<u64>) -> Option<u64> {
    let (left, right) = (open(left), open(right));
    let (mut offset, length) = (range.start, range.end);
    while offset < length {
        // Nothing can differ where both files have holes.
        offset = next_data(&left, offset).min(next_data(&right, offset)).max(offset);
        if offset >= length {
            break;
        }
        let want = WINDOW_BYTES.min(length - offset);
        let (a, b) = (read(&left, offset, want), read(&right, offset, want));
        if a != b || a.len() as u64 != want {
            let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
            return Some(offset + same as u64);
        }
        offset += want;
    }
    // Two holes compare equal even if one file is too short, so the lengths are checked
    // separately.
    [&left, &right].into_iter().filter_map(file_length).find(|end| *end < length)
}

/// Fails the test unless the first `length` bytes of both are the same.
#[track_caller]
pub fn assert_same(actual: &Path, expected: &Path, length: u64, case: &str) {
    if let Some(offset) = first_difference(actual, expected, 0..length) {
        panic!(
            "{case}: {} differs from {} at byte {offset:#x}",
            actual.display(),
            expected.display()
        );
    }
}

/// Total size of the [`BLOCK_BYTES`] blocks of `path` that are not all zero, which a sparse writer
/// has to write.
pub fn data_bytes(path: &Path) -> u64 {
    let file = open(path);
    let length = file_length(&file).or_fail("the length of a regular file");
    let mut total = 0;
    let mut offset = next_data(&file, 0) / BLOCK_BYTES * BLOCK_BYTES;
    while offset < length {
        let window = read(&file, offset, WINDOW_BYTES.min(length - offset));
        for block in window.chunks(to_usize(BLOCK_BYTES)) {
            if block.iter().any(|byte| *byte != 0) {
                total += block.len() as u64;
            }
        }
        offset += window.len() as u64;
        offset = next_data(&file, offset).max(offset) / BLOCK_BYTES * BLOCK_BYTES;
    }
    total
}

/// Returns true if the first `length` bytes (or all, if there are fewer) consist only of bytes in
/// `allowed`.
pub fn begins_with_only(allowed: &[u8], path: &Path, length: u64) -> bool {
    read(&open(path), 0, length).iter().all(|byte| allowed.contains(byte))
}

/// Reads up to `want` bytes at `offset`; fewer at the end.
fn read(file: &File, offset: u64, want: u64) -> Vec<u8> {
    let mut bytes = vec![0; to_usize(want)];
    let mut have = 0;
    while have < bytes.len() {
        match file.read_at(&mut bytes[have..], offset + have as u64).or_fail("read a disk") {
            0 => break,
            n => have += n,
        }
    }
    bytes.truncate(have);
    bytes
}

/// Returns the offset of the next data at or after `offset`, or `u64::MAX` if only a hole follows.
/// A device, which cannot report holes, counts as data.
pub(crate) fn next_data(file: &File, offset: u64) -> u64 {
    match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(data) => data,
        Err(Errno::NXIO) => u64::MAX,
        Err(_) => offset,
    }
}

/// The length of a regular file. Devices return `None`: their metadata states no length.
fn file_length(file: &File) -> Option<u64> {
    let metadata = file.metadata().or_fail("the metadata of an open file");
    metadata.is_file().then_some(metadata.len())
}

fn open(path: &Path) -> File {
    File::open(path).or_fail(path.display())
}

fn to_usize(n: u64) -> usize {
    usize::try_from(n).or_fail("tests run on 64-bit machines")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_after_a_hole_and_a_missing_end_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let (left, right) = (folder.path().join("left"), folder.path().join("right"));
        let length = 8 << 20;
        for path in [&left, &right] {
            File::create(path).unwrap().set_len(length).unwrap();
        }
        assert_eq!(first_difference(&left, &right, 0..length), None);
        File::options().write(true).open(&left).unwrap().write_at(b"x", 5_000_001).unwrap();
        assert_eq!(first_difference(&left, &right, 0..length), Some(5_000_001));
        assert_eq!(first_difference(&left, &right, 0..5_000_001), None);
        assert_eq!(first_difference(&left, &right, 5_000_002..length), None);
        assert_eq!(data_bytes(&left), BLOCK_BYTES);
        assert_eq!(data_bytes(&right), 0);
        File::options().write(true).open(&right).unwrap().set_len(4 << 20).unwrap();
        assert_eq!(first_difference(&right, &right, 0..length), Some(4 << 20));
    }

    #[test]
    fn content_has_no_zero_block_and_sparse_content_has_many() {
        let zero_blocks =
            |bytes: &[u8]| bytes.chunks(512).filter(|b| b.iter().all(|b| *b == 0)).count();
        assert_eq!(zero_blocks(&content(1, 1 << 20)), 0);
        let sparse = sparse_content(1, 8 << 20, 8);
        let share = zero_blocks(&sparse) * 100 / (sparse.len() / 512);
        assert!((50..99).contains(&share), "{share} % of a sparse disk is zero");
    }
}
