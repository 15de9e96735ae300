//! `cdi-importer check` agrees with `qemu-img check`, and says where the damage is.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use diskimage::Format;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::qcow2::{Guest, Qcow2};
use testkit::images::{Compression, Content, Spec};
use testkit::process::{Finished, Program};

fn check(image: &Path, options: &[&str]) -> Finished {
    Program::new(crate::BINARY).arg("check").args(options).arg(image).run()
}

/// Exit code of `qemu-img check`: 0 sound, 2 corrupt, 3 leaks.
fn qemu_check(image: &Path) -> i32 {
    Program::new("qemu-img").args(["check", "-f", "qcow2"]).arg(image).run().code()
}

/// An image, and the offsets of its tables.
struct Scene {
    folder: tempfile::TempDir,
    image: PathBuf,
    /// The first L2 table.
    l2: u64,
    /// The first refcount block.
    refcounts: u64,
}

impl Scene {
    fn new(compression: Compression) -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        let spec = Spec { compression, virtual_size: 4 << 20, ..Spec::new(Content::Dense) };
        let image = spec.build(folder.path(), "image").qcow2;
        let mut scene = Self { folder, image, l2: 0, refcounts: 0 };
        // qcow2.rst, "Header": L1 table at 40, refcount table at 48; bits 9-55 are offsets.
        let entry = |at| scene.be64(at) & 0x00ff_ffff_ffff_fe00;
        (scene.l2, scene.refcounts) = (entry(entry(40)), entry(entry(48)));
        scene
    }

    fn be64(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        let file = File::open(&self.image).or_fail(self.image.display());
        file.read_exact_at(&mut bytes, at).or_fail("read a number of the image");
        u64::from_be_bytes(bytes)
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(&self.image).or_fail(self.image.display());
        file.write_all_at(bytes, at).or_fail("damage the image");
    }

    fn put_entry(&self, at: u64, entry: u64) {
        self.put(at, &entry.to_be_bytes());
    }
}

/// A kind of damage, and the exit code of `qemu-img check`.
type Damage = (&'static str, fn(&Scene), i32);

const ALLOCATED: u64 = 1 << 63;

/// A refcount has 16 bits, so that the one at 12 is that of cluster 6, which has data.
const DAMAGES: [Damage; 9] = [
    ("a reference whose refcount is 0", |scene| scene.put(scene.refcounts + 12, &[0, 0]), 2),
    ("a refcount without a reference", |scene| scene.put_entry(scene.l2, 0), 3),
    (
        "two references to one cluster",
        |scene| scene.put_entry(scene.l2 + 8, scene.be64(scene.l2)),
        2,
    ),
    ("a table as data", |scene| scene.put_entry(scene.l2, scene.l2 | ALLOCATED), 2),
    ("data beyond the end", |scene| scene.put_entry(scene.l2, ALLOCATED | 1 << 40), 2),
    // Imports ignore the damage of these three.
    ("zeros beyond the end", |scene| scene.put_entry(scene.l2, ALLOCATED | 1 << 40 | 1), 2),
    (
        "reserved bits of an L1 entry",
        |scene| scene.put_entry(scene.be64(40), scene.be64(scene.be64(40)) | 1 << 56),
        2,
    ),
    (
        "a dirty image with a low refcount",
        |scene| {
            scene.put(79, &[1]);
            scene.put(scene.refcounts + 12, &[0, 0]);
        },
        2,
    ),
    ("no damage", |_| {}, 0),
];

#[test]
#[ignore = "tools: qemu-img"]
fn damage_is_found_as_by_qemu_and_reported_with_its_place() {
    let mut reports = String::new();
    let mut report = |case: &str, scene: &Scene, options: &[&str]| {
        let finished = check(&scene.image, options);
        let text = format!("{case} {options:?}: exit code {}\n", finished.code())
            + &finished.stdout
            + &finished.stderr;
        reports += &text.replace(&*scene.folder.path().to_string_lossy(), "{folder}");
        finished.code()
    };
    for (case, damage, theirs) in DAMAGES {
        let scene = Scene::new(Compression::Plain);
        damage(&scene);
        assert_eq!(qemu_check(&scene.image), theirs, "{case}");
        let expected = if theirs == 2 { 4 } else { 0 };
        for options in [&[][..], &["--json", "--data"]] {
            assert_eq!(report(case, &scene, options), expected, "{case} {options:?}");
        }
    }
    // Damage to compressed data is found only if data are read.
    let scene = Scene::new(Compression::Zlib);
    // "Compressed Clusters Descriptor": with clusters of 64 KiB the low 54 bits are the offset.
    scene.put(scene.be64(scene.l2) & ((1 << 54) - 1), &[0xff; 64]);
    check(&scene.image, &[]).assert_success("tables only");
    assert_eq!(report("compressed data", &scene, &["--data"]), 4);
    crate::assert_snapshot("check", &reports);
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn sound_images_have_no_errors() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let assert_sound = |image: &Path, case: &str| {
        let finished = check(image, &["--json", "--data"]);
        finished.assert_success(case);
        let report: serde_json::Value = serde_json::from_str(&finished.stdout).or_fail(case);
        assert_eq!(report["errors"], 0, "{case}: {report}");
        let leaks = report["leaked_clusters"].as_u64().or_fail(case);
        assert_eq!(qemu_check(image), if leaks > 0 { 3 } else { 0 }, "{case}: {report}");
    };
    let (zstd, zlib) = (Compression::Zstd, Compression::Zlib);
    let extended =
        Spec { extended_l2: true, refcount_bits: Some(64), ..Spec::new(Content::RandomOrder) };
    for spec in [
        Spec::new(Content::ZeroClusters),
        Spec::new(Content::Snapshots),
        Spec::new(Content::Empty),
        Spec { compression: zstd, cluster_size: 4096, ..Spec::new(Content::Sparse) },
        Spec { compression: zlib, ..extended },
    ] {
        assert_sound(&spec.build(folder.path(), "image").qcow2, &spec.to_string());
    }
    // Clusters with several references that are counted.
    let guest = |part| {
        vec![Guest::Data(1), Guest::Compressed(2), Guest::Data(1), Guest::Compressed(2), part]
    };
    for spec in [
        Qcow2::new(9, guest(Guest::Hole)),
        Qcow2 { snapshots: vec![guest(Guest::Data(3))], ..Qcow2::new(9, guest(Guest::Hole)) },
        Qcow2 { extended_l2: true, ..Qcow2::new(14, guest(Guest::Part(3, 0x0f0f))) },
    ] {
        let image = folder.path().join("shared.qcow2");
        std::fs::write(&image, spec.build().image).or_fail("the image");
        assert_sound(&image, &format!("{spec:?}"));
    }
}

/// A remedy that a message names works for its format: qemu-img checks only some formats (exit code
/// 63 for the others), and reads only the parents of VMDK images.
#[test]
#[ignore = "tools: qemu-img"]
fn remedies_work_for_their_formats() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    let qemu = |words: &[&str], files: &[&Path]| {
        Program::new("qemu-img").args(words).args(files).run().code()
    };
    let content = disk::content(1, 4 << 20);
    std::fs::write(path("raw"), &content).or_fail("a disk");
    for (name, format) in [
        ("qcow2", Format::Qcow2),
        ("vdi", Format::Vdi),
        ("vmdk", Format::Vmdk),
        ("vpc", Format::Vhd),
        ("vhdx", Format::Vhdx),
    ] {
        let image = path(name);
        assert_eq!(qemu(&["convert", "-f", "raw", "-O", name], &[&path("raw"), &image]), 0);
        let is_checked = qemu(&["check", "-r", "all", "-f", name], &[&image]) != 63;
        assert_eq!(
            format.repair_advice().contains("`qemu-img check -r all`"),
            is_checked,
            "{name}"
        );
    }
    let (parent, child) = (path("vmdk"), path("child.vmdk"));
    let words = ["create", "-q", "-f", "vmdk", "-F", "vmdk", "-b"];
    assert_eq!(qemu(&words, &[&parent, &child]), 0);
    check(&child, &[]).assert_failure(4, "flatten it first with `qemu-img convert -O qcow2`");
    assert_eq!(qemu(&["convert", "-O", "raw"], &[&child, &path("flat")]), 0);
    assert!(std::fs::read(path("flat")).or_fail("a disk") == content);
}
