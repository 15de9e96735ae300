//! Raw disks and ISO images, compressed in every way, from every kind of source.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use testkit::cases::check_all;
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Spec};
use testkit::origin::{Origin, Script};
use testkit::process::{Finished, Program};
use testkit::{disk, tools};

/// Size of a sector: a raw disk is padded with zeros to whole sectors, as by qemu-img.
const SECTOR_BYTES: usize = 512;

const MIB: usize = 1 << 20;

/// Compressed layers, outermost first, as the programs that make them.
type Layers = &'static [&'static str];

const DOUBLE: [Layers; 5] =
    [&["gzip", "xz"], &["xz", "gzip"], &["zstd", "gzip"], &["bzip2", "zstd"], &["gzip", "gzip"]];

/// Each compressor as the only layer.
fn single() -> impl Iterator<Item = Layers> {
    tools::COMPRESSORS.chunks(1)
}

/// An object to import and the disk it must become.
struct Case {
    name: String,
    object: Vec<u8>,
    disk: Vec<u8>,
}

impl Case {
    /// `payload`, compressed by `layers`; the result must be `disk`, padded to whole sectors.
    fn new(name: &str, layers: Layers, payload: &[u8], disk: &[u8]) -> Self {
        let mut padded = disk.to_vec();
        padded.resize(disk.len().next_multiple_of(SECTOR_BYTES), 0);
        Self {
            name: format!("{name} in {layers:?}"),
            object: compress(layers, payload),
            disk: padded,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Compresses `payload` by `layers`, the last of which is the innermost.
fn compress(layers: Layers, payload: &[u8]) -> Vec<u8> {
    let payload = payload.to_vec();
    layers.iter().rev().fold(payload, |bytes, program| tools::filter(program, ["-c", "-q"], &bytes))
}

fn importer(source: impl Into<std::ffi::OsString>, target: &Path) -> Program {
    Program::new(crate::BINARY).arg("import").arg(source).arg(target)
}

/// Imports the object of each case as a file, from a pipe and over HTTP.
fn check_cases(cases: Vec<Case>) {
    check_all(cases, |case| {
        let folder = tempfile::tempdir().or_fail("a folder");
        let (object, target) = (folder.path().join("object"), folder.path().join("disk.img"));
        std::fs::write(&object, &case.object).or_fail("write the object");
        check_one("file", case, &target, &importer(&object, &target).run());
        check_one(
            "pipe",
            case,
            &target,
            &importer("-", &target).stdin_bytes(case.object.clone()).run(),
        );
        let origin = Origin::start(Script::new(case.object.clone())).or_fail("start a server");
        check_one("http", case, &target, &importer(origin.url("/object"), &target).run());
    });
}

fn check_one(source: &str, case: &Case, target: &Path, finished: &Finished) {
    finished.assert_success(source);
    let actual = std::fs::read(target).or_fail(source);
    assert_eq!(actual.len(), case.disk.len(), "{source}: length of the disk");
    let difference =
        actual.iter().zip(&case.disk).position(|(actual, expected)| actual != expected);
    assert_eq!(difference, None, "{source}: first byte that differs");
    std::fs::remove_file(target).or_fail(source);
}

/// A disk with holes, as a file system leaves them.
static DISK: LazyLock<Vec<u8>> = LazyLock::new(|| disk::sparse_content(7, 6 << 20, 4));

#[test]
#[ignore = "slow: 5 s of CPU time"]
fn a_raw_disk_is_the_same_under_any_compression() {
    let layers = [&[] as Layers].into_iter().chain(single()).chain(DOUBLE);
    check_cases(layers.map(|layers| Case::new("raw", layers, &DISK, &DISK)).collect());
}

#[test]
#[ignore = "slow: 7 s of CPU time"]
fn a_disk_of_any_length_is_padded_to_whole_sectors() {
    let mut cases = Vec::new();
    for length in [1, 2, 511, 512, 513, 4095, MIB - 1, MIB, MIB + 1, 2 * MIB + 513] {
        let bytes = &disk::content(length as u64, 3 << 20)[..length];
        for layers in [&[] as Layers].into_iter().chain(single()) {
            cases.push(Case::new(&format!("{length} bytes"), layers, bytes, bytes));
        }
    }
    check_cases(cases);
}

#[test]
#[ignore = "tools: bzip2, xz, zstd"]
fn an_iso_image_is_the_same_under_any_compression() {
    let iso = std::fs::read(disk::iso()).unwrap();
    let layers = [&[] as Layers].into_iter().chain(single());
    check_cases(layers.map(|layers| Case::new("iso", layers, &iso, &iso)).collect());
}

#[test]
#[ignore = "slow: 11 s of CPU time"]
fn a_qcow2_image_is_converted_under_any_compression() {
    let folder = tempfile::tempdir().unwrap();
    let mut cases = Vec::new();
    for compression in [Compression::Plain, Compression::Zlib, Compression::Zstd] {
        let spec = Spec { compression, virtual_size: 12 << 20, ..Spec::new(Content::Sparse) };
        let image = spec.build(folder.path(), "image");
        let (qcow2, raw) = (std::fs::read(image.qcow2).unwrap(), std::fs::read(image.raw).unwrap());
        // Two layers are the same work for each kind of cluster.
        let double = DOUBLE.into_iter().filter(|_| compression == Compression::Plain);
        for layers in single().chain(double) {
            cases.push(Case::new(&image.name, layers, &qcow2, &raw));
        }
    }
    check_cases(cases);
}

#[test]
#[ignore = "tools: bzip2, xz, zstd"]
fn concatenated_members_are_one_stream() {
    let (front, back) = DISK.split_at(DISK.len() / 3);
    let cases = single().map(|layers| {
        let mut case = Case::new("two members", layers, front, &DISK);
        case.object.extend(compress(layers, back));
        case
    });
    check_cases(cases.collect());
}

#[test]
#[ignore = "tools: bzip2, xz, zstd"]
fn bytes_behind_the_last_member_are_an_error() {
    for layers in single() {
        let mut case = Case::new("raw", layers, &DISK, &DISK);
        case.object.extend(b"these bytes are not a member");
        refused(case.object, 4, "do not belong to it");
    }
}

/// The tests of `datapath` try every cut; here the whole program is tried with a few.
#[test]
#[ignore = "tools: bzip2, qemu-img, xz, zstd"]
fn an_object_that_ends_too_early_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let image = Spec::new(Content::Sparse).build(folder.path(), "image");
    let images = [std::fs::read(image.qcow2).unwrap()].into_iter();
    for object in images.chain(single().map(|layers| compress(layers, &DISK))) {
        for percent in [1, 50, 99] {
            refused(object[..object.len() * percent / 100].to_vec(), 4, "");
        }
    }
}

#[test]
#[ignore = "tools: bzip2, xz, zstd"]
fn a_source_without_bytes_is_an_error() {
    refused(Vec::new(), 4, "the source is empty: 0 bytes were read");
    for layers in single() {
        refused(compress(layers, &[]), 4, "the source is empty: 0 bytes were read");
    }
}

#[test]
#[ignore = "tools: xz"]
fn too_many_layers_are_refused() {
    let layers = &["gzip", "xz", "gzip", "xz", "gzip", "xz", "gzip", "xz", "gzip"];
    refused(compress(layers, &DISK[..MIB]), 4, "nested layers of compression");
}

#[test]
#[ignore = "tools: zstd"]
fn a_bomb_is_refused_at_the_size_of_the_target() {
    // 4 GiB of zeros in a few KiB. Members can be repeated, so that only one is compressed.
    let member = compress(&["zstd"], &vec![0; 64 * MIB]);
    let bomb = compress(&["gzip"], &member.repeat(64));
    assert!(bomb.len() < MIB, "the bomb has {} bytes", bomb.len());
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("disk.img");
    let finished = importer("-", &target).args(["--size", "100Mi"]).stdin_bytes(bomb).run();
    finished.assert_failure(5, "bytes, and the target has room for ");
    assert!(!target.exists(), "the partial target was left behind");
}

/// Asserts that the object is refused from a pipe, and that no target is left.
fn refused(object: Vec<u8>, code: i32, sentence: &str) {
    let folder = tempfile::tempdir().or_fail("a folder");
    let target: PathBuf = folder.path().join("disk.img");
    let finished = importer("-", &target).stdin_bytes(object).run();
    finished.assert_failure(code, sentence);
    assert!(!target.exists(), "{sentence}: the target was left behind");
}
