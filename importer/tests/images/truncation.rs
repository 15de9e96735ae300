//! No prefix of an object is a success, unless everything that it maps is there.

use std::path::Path;
use std::time::Duration;

use testkit::cases::check_all;
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Spec};
use testkit::process::Program;
use testkit::tmpfs::fast_folder;
use testkit::{disk, tools};

/// A shorter prefix cannot be told from a tiny raw disk, which is a valid object: the magic numbers of the
/// compressed formats and what must follow them take up to this many bytes.
const MAGIC_BYTES: usize = 18;

/// Every cut is tried in this many bytes at both ends of an object…
const EDGE_BYTES: usize = 192;

/// …and every cut at a multiple of this between them.
const STEP_BYTES: usize = 512;

/// An object and the disk that the whole of it becomes.
struct Object {
    name: String,
    bytes: Vec<u8>,
    disk: Vec<u8>,
}

impl Object {
    fn cuts(&self) -> impl Iterator<Item = usize> + Send {
        let length = self.bytes.len();
        let edge = EDGE_BYTES.min(length);
        (MAGIC_BYTES..length)
            .filter(move |cut| *cut < edge || *cut >= length - edge || cut.is_multiple_of(STEP_BYTES))
    }

    /// Imports the first `cut` bytes from a pipe.
    fn check(&self, cut: usize) {
        let folder = fast_folder();
        let target = folder.path().join("disk.img");
        let program = Program::new(crate::BINARY).args(["import", "-"]).arg(&target);
        let program = program.timeout(Duration::from_secs(60));
        let finished = program.stdin_bytes(&self.bytes[..cut]).start().wait();
        if finished.code() == 0 {
            // Padding behind the last cluster may be missing; a byte of the disk may not.
            let disk = std::fs::read(&target).or_fail("the target");
            assert!(
                disk == self.disk,
                "a false success: the disk has {} bytes",
                disk.len()
            );
        } else {
            assert!(
                [3, 4].contains(&finished.code()) && !finished.crashed(),
                "{finished:?}"
            );
            assert!(!target.exists(), "the target of a failed import was left behind");
        }
    }
}

fn check_every_cut(object: &Object) {
    check_all(
        object.cuts().map(|cut| Cut {
            name: &object.name,
            cut,
        }),
        |Cut { cut, .. }| object.check(*cut),
    );
}

struct Cut<'a> {
    name: &'a str,
    cut: usize,
}

impl std::fmt::Display for Cut<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the first {} bytes of {}", self.cut, self.name)
    }
}

#[test]
fn a_truncated_compressed_disk_is_never_a_success() {
    let disk = disk::sparse_content(3, 64 << 10, 3);
    for program in tools::COMPRESSORS {
        let bytes = tools::filter(program, ["-c", "-q"], &disk);
        check_every_cut(&Object {
            name: format!("a disk in {program}"),
            bytes,
            disk: disk.clone(),
        });
    }
}

#[test]
fn a_truncated_qcow2_image_is_never_a_success_unless_nothing_is_missing() {
    let folder = fast_folder();
    for (compression, cluster_size) in [
        (Compression::Plain, 512),
        (Compression::Zlib, 512),
        (Compression::Plain, 4096),
        (Compression::Zstd, 4096),
    ] {
        for content in [Content::Sparse, Content::Snapshots] {
            let spec = Spec {
                compression,
                cluster_size,
                virtual_size: 128 << 10,
                ..Spec::new(content)
            };
            check_every_cut(&object(&spec, folder.path()));
        }
    }
}

fn object(spec: &Spec, folder: &Path) -> Object {
    let image = spec.build(folder, "image");
    let read = |path: &Path| std::fs::read(path).or_fail(path.display());
    Object {
        name: spec.to_string(),
        bytes: read(&image.qcow2),
        disk: read(&image.raw),
    }
}
