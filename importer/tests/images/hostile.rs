//! Malicious qcow2 images: each is refused in bounded time and memory, or read as by qemu-img.

mod patch;

use std::path::Path;

use crate::formats::check::{ROUTES, importer};
use patch::Corpus;
use testkit::cases::{Named, check_all, sample};
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Spec};
use testkit::tmpfs::fast_folder;
use testkit::{disk, tools};

/// Number of patches that a run tries.
const SAMPLE: usize = 700;

/// Valid images of every kind: plain, zlib and zstd clusters, extended L2 entries, snapshots.
fn bases(folder: &Path) -> [Corpus; 5] {
    let small = |content| Spec { cluster_size: 4096, virtual_size: 2 << 20, ..Spec::new(content) };
    let extended =
        Spec { cluster_size: 16 << 10, extended_l2: true, ..small(Content::ZeroClusters) };
    [
        ("plain", small(Content::Sparse)),
        ("zlib", Spec { compression: Compression::Zlib, ..small(Content::RandomOrder) }),
        ("zstd", Spec { compression: Compression::Zstd, ..small(Content::RandomOrder) }),
        ("extended", extended),
        ("snapshots", small(Content::Snapshots)),
    ]
    .map(|(name, spec)| Corpus::new(name, spec.build(folder, name)))
}

/// Compares the disk with that of qemu-img. Where qemu-img refuses the image (for a reference
/// count that we need not read), the expected disk is that of the image before the patch.
fn check_success(base: &Corpus, image: &Path, target: &Path) {
    let raw = image.with_extension("raw");
    let expected = if tools::qemu_converts("qcow2", image, &raw) { &raw } else { &base.image.raw };
    let length = |path: &Path| path.metadata().or_fail(path.display()).len();
    assert_eq!(length(target), length(expected), "length of the disk");
    disk::assert_same(target, expected, length(expected), "the disk");
}

/// Every header field and every kind of table entry with every boundary value, and noise in
/// metadata and data.
#[test]
#[ignore = "slow: 12 s of CPU time"]
fn patched_images_are_refused_or_read_as_by_qemu() {
    let folder = fast_folder();
    let bases = bases(folder.path());
    let mut cases = Vec::new();
    for (seed, base) in (0..).zip(&bases) {
        let fields = patch::header_fields(base).into_iter();
        for patch in fields.chain(patch::table_entries(base)).chain(patch::noise(base, seed, 60)) {
            for route in ROUTES {
                let name = format!("{}, {patch}, {route:?}", base.name);
                cases.push(Named(name, (base, patch.clone(), route)));
            }
        }
    }
    check_all(sample(cases, SAMPLE), |Named(_, (base, patch, route))| {
        let folder = fast_folder();
        let image = folder.path().join("image.qcow2");
        std::fs::write(&image, patch.apply(base.bytes())).or_fail("write the image");
        let target = folder.path().join("disk.img");
        let finished = importer(&image, *route, &target).run();
        if finished.code() == 0 {
            return check_success(base, &image, &target);
        }
        // 4: corrupt or refused; 5: a disk of this size fits nowhere.
        let is_typed = [4, 5].contains(&finished.code()) && !finished.crashed();
        assert!(is_typed && !finished.stderr.trim().is_empty(), "{finished:?}");
        assert!(!target.exists(), "the target of a refused image was left behind");
    });
}
