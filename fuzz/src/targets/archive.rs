//! Unpacks any tar. Files appear only in the target directory; as the clone of a volume, the tar
//! becomes a disk or fails without a trace. The same bytes are also decoded as a framed snappy
//! stream.

use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use codec::decode::Codec;
use datapath::unpack::{UnpackOptions, unpack_archive};
use stream::options::{CompressionLayers, PayloadKind, ReadOptions};

use crate::Pieces;
use crate::transfers::{AVAILABLE, FOLDER, MemorySource, transfer};

/// Size of a tar's block, and the position of the checksum in a header.
const BLOCK: usize = 512;
const CHECKSUM: Range<usize> = 148..156;

/// The directory that receives the files.
static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = FOLDER.join("dir");
    fs::create_dir_all(&dir).expect("a directory");
    dir
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

fn run_unpack(source: &MemorySource) {
    let target = UnpackOptions { dir: DIR.clone(), overwrite: false, available: AVAILABLE };
    let outcome = unpack_archive(source, &target, &ReadOptions::default());
    let left = fs::read_dir(&*DIR).expect("the directory").count();
    match outcome {
        Ok(report) => assert!(report.written_bytes <= AVAILABLE),
        Err(_) => assert_eq!(left, 0, "a failure left files behind"),
    }
    let beside = fs::read_dir(&*FOLDER).expect("the folder").count();
    assert_eq!(beside, 1, "a file appeared outside of the directory");
    if left > 0 {
        clear(&DIR);
    }
}

/// Empties the directory. An archive may contain directories that only root can read.
fn clear(dir: &Path) {
    fs::remove_dir_all(dir).expect("what was unpacked; run this as root");
    fs::create_dir(dir).expect("the directory again");
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
    let cut = |object: &[u8]| {
        let pieces = Pieces::new(&[cuts, object].concat()).expect("four bytes and more");
        MemorySource { pieces, is_ranged: false }
    };
    run_unpack(&cut(&tar));
    let reading =
        ReadOptions { layers: CompressionLayers::Only(Codec::Snappy), ..ReadOptions::default() };
    transfer(&cut(&framed(&tar)), PayloadKind::CloneOfFiles, &reading);
    transfer(&cut(bytes), PayloadKind::RAW, &reading);
}
