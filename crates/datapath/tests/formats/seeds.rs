//! Reads the seeds of the fuzz targets without a fuzzer.

use std::path::{Path, PathBuf};

use crate::check::import;

/// Bytes at the front of a seed that say how its stream is split.
const CUTS: usize = 4;

fn seeds(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    files.collect()
}

/// Returns the image that the targets for sparse images build from a seed: a length, then records
/// of an offset, a length and bytes.
fn spread(seed: &[u8]) -> Vec<u8> {
    let number = |bytes: &[u8]| {
        let bytes = bytes.iter().rev().map(|byte| usize::from(*byte));
        bytes.fold(0, |number, byte| number << 8 | byte)
    };
    let mut image = vec![0; number(&seed[..3])];
    let mut records = &seed[3..];
    while !records.is_empty() {
        let (offset, length) = (number(&records[..4]), number(&records[4..6]));
        image[offset..offset + length].copy_from_slice(&records[6..6 + length]);
        records = &records[6 + length..];
    }
    image
}

#[test]
fn every_seed_is_read_the_same_by_both_routes() {
    for target in ["qcow2", "vmdk", "vdi", "vhd", "vhdx", "transfer"] {
        let seeds = seeds(target);
        assert!(seeds.len() > 1, "{target} has {} seeds", seeds.len());
        for path in seeds {
            let seed = std::fs::read(&path).unwrap();
            let (_, object) = seed.split_at(CUTS);
            let image = match target {
                "qcow2" | "transfer" => object.to_vec(),
                _ => spread(object),
            };
            let image = image.into();
            let [passed, mapped] = [false, true].map(|ranged| import(&image, ranged));
            let (passed, mapped) = (passed.expect("a disk"), mapped.expect("a disk"));
            assert!(passed.disk == mapped.disk, "{}", path.display());
        }
    }
}
