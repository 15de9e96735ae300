//! Unpacks a tar to a directory in memory, with a few large files or many small ones. Throughput
//! counts the bytes of the files.

use std::cell::LazyCell;

use benches::{Kind, memory};
use criterion::Criterion;
use datapath::unpack::{UnpackOptions, unpack_archive};
use stream::options::ReadOptions;

use crate::{Result, done, group, place};

const DATA_BYTES: usize = 16 << 20;
const BLOCK_BYTES: usize = 512;

/// Sizes of the files.
const SIZES: [(&str, usize); 2] = [("large", 4 << 20), ("small", 8 << 10)];

pub(crate) fn run(criterion: &mut Criterion) -> Result<()> {
    let folder = place::in_memory()?;
    let target =
        UnpackOptions { dir: folder.path().to_owned(), overwrite: true, available: u64::MAX };
    let options = ReadOptions::default();
    let mut group = group(criterion, "archive", DATA_BYTES);
    for (name, bytes) in SIZES {
        // Made only if this benchmark is selected.
        let source = LazyCell::new(|| memory(&tar(&Kind::Text.data(DATA_BYTES), bytes), false));
        group.bench_function(format!("{name}-files/{}", Kind::Text.name()), |bencher| {
            let source = LazyCell::force(&source);
            bencher.iter(|| done(unpack_archive(source, &target, &options).map_err(Into::into)));
        });
    }
    group.finish();
    Ok(())
}

/// Returns a tar of `data`, cut into files of `file_bytes`.
fn tar(data: &[u8], file_bytes: usize) -> Vec<u8> {
    let mut tar = Vec::new();
    for (number, file) in data.chunks(file_bytes).enumerate() {
        tar.extend(header(&format!("folder-{}/file-{number}", number / 100), file.len()));
        tar.extend(file);
        tar.resize(tar.len().next_multiple_of(BLOCK_BYTES), 0);
    }
    tar.extend([0; 2 * BLOCK_BYTES]);
    tar
}

/// Returns a ustar header of a regular file: name, mode, size, time and checksum.
fn header(name: &str, size: usize) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let mut put =
        |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000644");
    put(124, &format!("{size:011o}"));
    put(136, "14524717400");
    put(148, "        0");
    put(257, "ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    block
}
