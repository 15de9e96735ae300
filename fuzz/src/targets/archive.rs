//! Unpacks any tar. Files appear only in the target directory; as the clone of a volume, the tar
//! becomes a disk or fails without a trace. The same bytes are also decoded as a framed snappy
//! stream.

use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::Pieces;
use bytes::Bytes;
use datapath::archive::{self, unpack_archive};
use datapath::decode::Codec;
use datapath::disk;
use datapath::error::SourceError;
use datapath::options::{CompressionLayers, PayloadKind, ReadOptions, WriteOptions};
use datapath::source::{Source, SourceBody};
use datapath::transfer::transfer_image;

/// Space on the target. This limit also stops bombs.
const AVAILABLE: u64 = 1 << 20;

/// Size of a tar's block, and the position of the checksum in a header.
const BLOCK: usize = 512;
const CHECKSUM: Range<usize> = 148..156;

struct Memory(Pieces);

impl Source for Memory {
    fn name(&self) -> String {
        "memory".into()
    }

    fn total_bytes(&self) -> Option<u64> {
        None
    }

    fn is_ranged(&self) -> bool {
        false
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        Ok(Box::new(MemoryBody(self.0.clone())))
    }

    fn read_range(&self, _range: Range<u64>) -> Result<Bytes, SourceError> {
        unreachable!("the source has no ranges")
    }
}

struct MemoryBody(Pieces);

impl SourceBody for MemoryBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        Ok(self.0.next())
    }

    fn skip_to(&mut self, _offset: u64) -> Result<(), SourceError> {
        unreachable!("the source has no ranges")
    }
}

/// The folder to work in, in memory if possible, because the fuzzer makes thousands of files a
/// second.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let shared_memory = PathBuf::from("/dev/shm");
    let parent = if shared_memory.is_dir() { shared_memory } else { std::env::temp_dir() };
    let folder = parent.join(format!("cdi-fuzz-archive-{}", std::process::id()));
    fs::create_dir_all(folder.join("dir")).expect("a folder to work in");
    folder
});

/// Fills in the checksum of headers in which it is blank, because the fuzzer would never find a
/// correct one.
fn sealed(input: &[u8]) -> Vec<u8> {
    let mut tar = input.to_vec();
    for block in tar.chunks_exact_mut(BLOCK) {
        if block[CHECKSUM] == *b"        " {
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    tar
}

fn run_unpack(pieces: &Pieces) {
    let dir = FOLDER.join("dir");
    let target =
        archive::UnpackOptions { dir: dir.clone(), overwrite: false, available: AVAILABLE };
    let outcome = unpack_archive(&Memory(pieces.clone()), &target, &ReadOptions::default());
    let left = fs::read_dir(&dir).expect("the directory").count();
    match outcome {
        Ok(report) => assert!(report.written_bytes <= AVAILABLE),
        Err(_) => assert_eq!(left, 0, "a failure left files behind"),
    }
    let beside = fs::read_dir(&*FOLDER).expect("the folder").count();
    assert_eq!(beside, 1, "a file appeared outside of the directory");
    if left > 0 {
        clear(&dir);
    }
}

/// Empties the directory. An archive may contain directories that only root can read.
fn clear(dir: &Path) {
    fs::remove_dir_all(dir).expect("what was unpacked; run this as root");
    fs::create_dir(dir).expect("the directory again");
}

fn run_transfer(pieces: &Pieces, content: PayloadKind) {
    let target = disk::DiskOptions {
        path: FOLDER.join("disk"),
        available: AVAILABLE,
        size: None,
        preallocate: false,
        cache: disk::CacheMode::Auto,
        overwrite: false,
        mode: None,
    };
    let reading =
        ReadOptions { layers: CompressionLayers::Only(Codec::Snappy), ..ReadOptions::default() };
    let writing = WriteOptions::default();
    if let Ok(report) =
        transfer_image(&Memory(pieces.clone()), content, &target, &reading, &writing)
    {
        let disk = fs::metadata(&target.path).expect("the target of a success");
        assert_eq!(disk.len(), report.virtual_size);
        assert!(report.virtual_size <= AVAILABLE);
        fs::remove_file(&target.path).expect("the target of a success");
    }
    assert!(!target.path.exists(), "a failure left the target behind");
}

fn framed(tar: &[u8]) -> Vec<u8> {
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(tar).expect("memory");
    encoder.into_inner().expect("memory")
}

pub fn run(data: &[u8]) {
    let Some((cuts, bytes)) = data.split_first_chunk::<4>() else {
        return;
    };
    let tar = sealed(bytes);
    let cut = |object: &[u8]| Pieces::new(&[cuts, object].concat()).expect("four bytes and more");
    run_unpack(&cut(&tar));
    run_transfer(&cut(&framed(&tar)), PayloadKind::CloneOfFiles);
    run_transfer(&cut(bytes), PayloadKind::RAW);
}
