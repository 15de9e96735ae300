//! Disk images and ISO images, compressed in every way, from every kind of source. The tests of
//! `datapath` try all lengths, cuts and damage.

use std::path::Path;

use testkit::cases::{Named, check_all};
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Spec};
use testkit::origin::{Origin, Script};
use testkit::process::Program;
use testkit::{disk, tools};

const MIB: usize = 1 << 20;

/// Compressed layers, outermost first, as the programs that make them.
type Layers = &'static [&'static str];

const DOUBLE: [Layers; 5] =
    [&["gzip", "xz"], &["xz", "gzip"], &["zstd", "gzip"], &["bzip2", "zstd"], &["gzip", "gzip"]];

/// Each compressor as the only layer.
fn single() -> impl Iterator<Item = Layers> {
    tools::COMPRESSORS.chunks(1)
}

/// The object to import and the disk it must become.
type Case = Named<String, (Vec<u8>, Vec<u8>)>;

/// `payload`, compressed by `layers`; the result must be `disk`.
fn case(name: &str, layers: Layers, payload: &[u8], disk: &[u8]) -> Case {
    let object = compress(layers, payload);
    let mut disk = disk.to_vec();
    // A raw disk is padded with zeros to whole sectors, as by qemu-img.
    disk.resize(disk.len().next_multiple_of(512), 0);
    Named(format!("{name} in {layers:?}"), (object, disk))
}

/// Compresses `payload` by `layers`, the last of which is the innermost.
fn compress(layers: Layers, payload: &[u8]) -> Vec<u8> {
    let payload = payload.to_vec();
    layers.iter().rev().fold(payload, |bytes, program| tools::filter(program, ["-c", "-q"], &bytes))
}

fn importer(source: impl Into<std::ffi::OsString>, target: &Path) -> Program {
    Program::new(crate::BINARY).args(["import", "--force"]).arg(source).arg(target)
}

/// Imports the object of each case as a file, from a pipe and over HTTP.
fn check_cases(cases: Vec<Case>) {
    check_all(cases, |Named(_, (bytes, disk))| {
        let folder = tempfile::tempdir().or_fail("a folder");
        let (object, target) = (folder.path().join("object"), folder.path().join("disk.img"));
        std::fs::write(&object, bytes).or_fail("write the object");
        let origin = Origin::start(Script::new(bytes.clone())).or_fail("start a server");
        for (source, program) in [
            ("file", importer(&object, &target)),
            ("pipe", importer("-", &target).stdin_bytes(bytes.clone())),
            ("http", importer(origin.url("/object"), &target)),
        ] {
            program.run().assert_success(source);
            let actual = std::fs::read(&target).or_fail(source);
            assert_eq!(actual.len(), disk.len(), "{source}: length of the disk");
            let difference = actual.iter().zip(disk).position(|(actual, disk)| actual != disk);
            assert_eq!(difference, None, "{source}: first byte that differs");
        }
    });
}

#[test]
#[ignore = "server: memtest86+"]
fn an_iso_image_is_the_same_under_any_compression() {
    let iso = std::fs::read(disk::iso()).or_fail("an ISO image");
    let layers = [&[] as Layers].into_iter().chain(single());
    let mut cases: Vec<_> = layers.map(|layers| case("iso", layers, &iso, &iso)).collect();
    let odd = disk::content(1, (1 << 20) + 513);
    cases.push(case("a disk of an odd length", &["xz"], &odd, &odd));
    // Concatenated members are one stream.
    let mut members = case("two members", &["gzip"], &odd[..MIB / 3], &odd);
    members.1.0.extend(compress(&["gzip"], &odd[MIB / 3..]));
    cases.push(members);
    check_cases(cases);
}

#[test]
#[ignore = "slow: 11 s of CPU time"]
fn a_qcow2_image_is_converted_under_any_compression() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let mut cases = Vec::new();
    for compression in [Compression::Plain, Compression::Zlib, Compression::Zstd] {
        let spec = Spec { compression, virtual_size: 12 << 20, ..Spec::new(Content::Sparse) };
        let image = spec.build(folder.path(), "image");
        let [qcow2, raw] = [&image.qcow2, &image.raw].map(|file| std::fs::read(file).or_fail("it"));
        // Two layers are the same work for each kind of cluster.
        let double = DOUBLE.into_iter().filter(|_| compression == Compression::Plain);
        for layers in single().chain(double) {
            cases.push(case(&image.name, layers, &qcow2, &raw));
        }
    }
    check_cases(cases);
}
