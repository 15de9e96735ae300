//! `cdi-importer check` agrees with `qemu-img check`, and says where the damage is.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use testkit::fail::OrFail;
use testkit::images::qcow2::{Guest, Qcow2};
use testkit::images::{Compression, Content, Image, Spec};
use testkit::process::{Finished, Program};

const CLUSTER: u64 = 64 << 10;

fn check(image: &Path, arguments: &[&str]) -> Finished {
    Program::new(crate::BINARY).arg("check").args(arguments).arg(image).run()
}

/// Exit code of `qemu-img check`: 0 sound, 2 corrupt, 3 leaks.
fn qemu_check(image: &Path) -> i32 {
    let finished = Program::new("qemu-img").args(["check", "-f", "qcow2"]).arg(image).run();
    finished.code()
}

fn report(finished: &Finished) -> serde_json::Value {
    serde_json::from_str(&finished.stdout).or_fail(&finished.stderr)
}

fn be64(path: &Path, at: u64) -> u64 {
    let mut bytes = [0; 8];
    let file = std::fs::File::open(path).or_fail(path.display());
    file.read_exact_at(&mut bytes, at).or_fail("read a number of the image");
    u64::from_be_bytes(bytes)
}

fn put(path: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).or_fail(path.display());
    file.write_all_at(bytes, at).or_fail("damage the image");
}

/// An image, and the offsets of its tables.
struct Scene {
    _folder: tempfile::TempDir,
    image: PathBuf,
    /// The first L2 table.
    l2: u64,
    /// The first refcount block.
    refcounts: u64,
}

fn scene(compression: Compression) -> Scene {
    let folder = tempfile::tempdir().or_fail("a folder");
    let spec = Spec { compression, virtual_size: 4 << 20, ..Spec::new(Content::Dense) };
    let Image { qcow2, .. } = spec.build(folder.path(), "image");
    // qcow2.rst, "Header": L1 table at 40, refcount table at 48; bits 9-55 are offsets.
    let entry = |at| be64(&qcow2, at) & 0x00ff_ffff_ffff_fe00;
    let (l2, refcounts) = (entry(entry(40)), entry(entry(48)));
    Scene { _folder: folder, image: qcow2, l2, refcounts }
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn sound_images_have_no_errors() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let mut specs: Vec<Spec> = [
        Content::Sparse,
        Content::Dense,
        Content::ZeroClusters,
        Content::Snapshots,
        Content::RandomOrder,
        Content::Empty,
    ]
    .into_iter()
    .map(Spec::new)
    .collect();
    specs.push(Spec {
        compression: Compression::Zstd,
        cluster_size: 4096,
        ..Spec::new(Content::Sparse)
    });
    specs.push(Spec {
        compression: Compression::Zlib,
        extended_l2: true,
        refcount_bits: Some(64),
        ..Spec::new(Content::RandomOrder)
    });
    for spec in specs {
        let image = spec.build(folder.path(), "image");
        let finished = check(&image.qcow2, &["--json", "--data"]);
        finished.assert_success(&spec.to_string());
        let report = report(&finished);
        assert_eq!(report["errors"], 0, "{spec}: {report}");
        assert_eq!(report["virtual_size"], image.virtual_size, "{spec}");
        let leaks = report["leaked_clusters"].as_u64().unwrap_or(0);
        assert_eq!(leaks > 0, qemu_check(&image.qcow2) == 3, "{spec}: {report}");
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_reference_whose_refcount_is_0_is_found() {
    let scene = scene(Compression::Plain);
    // A refcount has 16 bits, so that this is that of cluster 6, which has data.
    put(&scene.image, scene.refcounts + 12, &[0, 0]);
    assert_eq!(qemu_check(&scene.image), 2);
    let finished = check(&scene.image, &[]);
    // The count is wrong, and so is the flag of the entry that claims a count of 1.
    finished.assert_failure(4, "2 error(s)");
    assert!(finished.stdout.contains("0x60000"), "{}", finished.stdout);
    assert!(finished.stdout.contains("a refcount of 0"), "{}", finished.stdout);
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_refcount_without_a_reference_is_a_leak_but_not_an_error() {
    let scene = scene(Compression::Plain);
    put(&scene.image, scene.l2, &[0; 8]);
    assert_eq!(qemu_check(&scene.image), 3);
    let finished = check(&scene.image, &["--json"]);
    finished.assert_success("a leak");
    assert_eq!(report(&finished)["leaked_clusters"], 1);
}

#[test]
#[ignore = "tools: qemu-img"]
fn two_references_to_one_cluster_are_found() {
    let scene = scene(Compression::Plain);
    let first = be64(&scene.image, scene.l2);
    put(&scene.image, scene.l2 + 8, &first.to_be_bytes());
    assert_eq!(qemu_check(&scene.image), 2);
    let finished = check(&scene.image, &["--json"]);
    finished.assert_failure(4, "error(s)");
    let errors = report(&finished)["first_errors"].to_string();
    assert!(errors.contains("2 references (as data)"), "{errors}");
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_reference_to_a_table_as_data_is_found() {
    let scene = scene(Compression::Plain);
    put(&scene.image, scene.l2, &(scene.l2 | 1 << 63).to_be_bytes());
    assert_eq!(qemu_check(&scene.image), 2);
    let finished = check(&scene.image, &[]);
    finished.assert_failure(4, "error(s)");
    assert!(finished.stdout.contains("an L2 table"), "{}", finished.stdout);
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_reference_beyond_the_end_is_found() {
    let scene = scene(Compression::Plain);
    put(&scene.image, scene.l2, &(1u64 << 63 | 1 << 40).to_be_bytes());
    assert_eq!(qemu_check(&scene.image), 2);
    let finished = check(&scene.image, &["--data"]);
    finished.assert_failure(4, "error(s)");
    assert!(finished.stdout.contains("beyond the end of the image"), "{}", finished.stdout);
}

#[test]
#[ignore = "tools: qemu-img"]
fn damage_that_conversions_ignore_is_found_as_by_qemu() {
    // A zero cluster beyond the end; reserved bits of an L1 entry; a dirty image with low counts.
    type Damage = fn(&Scene);
    let damages: [Damage; 3] = [
        |scene| put(&scene.image, scene.l2, &(1u64 << 63 | 1 << 40 | 1).to_be_bytes()),
        |scene| {
            let l1 = be64(&scene.image, 40);
            put(&scene.image, l1, &(be64(&scene.image, l1) | 1 << 56).to_be_bytes());
        },
        |scene| {
            put(&scene.image, 79, &[1]);
            put(&scene.image, scene.refcounts + 12, &[0, 0]);
        },
    ];
    for damage in damages {
        let scene = scene(Compression::Plain);
        damage(&scene);
        assert_eq!(qemu_check(&scene.image), 2);
        check(&scene.image, &[]).assert_failure(4, "error(s)");
    }
}

#[test]
fn clusters_with_several_counted_references_are_sound() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = folder.path().join("image.qcow2");
    let guest = |part| {
        vec![Guest::Data(1), Guest::Compressed(2), Guest::Data(1), Guest::Compressed(2), part]
    };
    for spec in [
        Qcow2::new(9, guest(Guest::Hole)),
        Qcow2 { snapshots: vec![guest(Guest::Data(3))], ..Qcow2::new(9, guest(Guest::Hole)) },
        Qcow2 { extended_l2: true, ..Qcow2::new(14, guest(Guest::Part(3, 0x0f0f))) },
    ] {
        std::fs::write(&image, spec.build().image).or_fail("the image");
        assert_eq!(qemu_check(&image), 0, "{spec:?}");
        let finished = check(&image, &["--json", "--data"]);
        finished.assert_success("counted references");
        assert_eq!(report(&finished)["leaked_clusters"], 0);
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_damaged_cluster_is_found_when_data_are_read() {
    let scene = scene(Compression::Zlib);
    // "Compressed Clusters Descriptor": with clusters of 64 KiB the low 54 bits are the offset.
    let host = be64(&scene.image, scene.l2) & ((1 << 54) - 1);
    assert!(host > CLUSTER);
    put(&scene.image, host, &[0xff; 64]);
    check(&scene.image, &[]).assert_success("tables only");
    let finished = check(&scene.image, &["--data"]);
    finished.assert_failure(4, "does not inflate");
}

#[test]
#[ignore = "tools: qemu-img"]
fn raw_disks_and_pipes_cannot_be_checked() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let raw = folder.path().join("disk.raw");
    std::fs::write(&raw, vec![7; 4096]).or_fail("write a raw disk");
    let finished = check(&raw, &[]);
    finished.assert_failure(4, "no structure that could be checked");

    let scene = scene(Compression::Plain);
    Program::new(crate::BINARY)
        .args(["check", "-"])
        .stdin_file(&scene.image)
        .run()
        .assert_failure(3, "its source must support ranges");
}
