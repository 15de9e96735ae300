//! Files of several formats: hybrid images, alone and inside others, and deceptive polyglots.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use testkit::cases::check_all;
use testkit::fail::OrFail;
use testkit::images::{SUBFORMATS, Subformat};
use testkit::process::Program;
use testkit::{disk, tools};

use crate::formats::check::{check, refused};

/// Marks with names and offsets: an ISO 9660 descriptor, a boot signature, a GPT header.
const MARKS: [(&str, u64, &[u8]); 3] = [
    ("ISO 9660", 0x8000, b"\x01CD001\x01\0"),
    ("MBR", 510, b"\x55\xaa"),
    ("GPT", 512, b"EFI PART\0\0\x01\0"),
];

/// ISO images that are also disks, and disks for several media, from packages of Debian.
fn hybrids() -> [PathBuf; 5] {
    [
        ("/usr/lib/memtest86+/memtest86+x64.iso", "memtest86+"),
        ("/usr/lib/memtest86+/memtest86+ia32.iso", "memtest86+"),
        ("/usr/lib/ipxe/ipxe.iso", "ipxe"),
        ("/usr/lib/grub-rescue/grub-rescue-cdrom.iso", "grub-rescue-pc"),
        ("/usr/lib/grub-rescue/grub-rescue-floppy.img", "grub-rescue-pc"),
    ]
    .map(|(path, package)| {
        assert!(Path::new(path).is_file(), "this test needs {path}: apt-get install {package}");
        path.into()
    })
}

/// A disk with an MBR and a GPT in front of some data.
fn gpt_disk(path: &Path) {
    let mut bytes = disk::sparse_content(1, 4 << 20, 4);
    bytes[..0x9000].fill(0);
    std::fs::write(path, bytes).or_fail("the disk");
    mark(path, MARKS[1]);
    mark(path, MARKS[2]);
}

fn mark(image: &Path, (_, at, bytes): (&str, u64, &[u8])) {
    let file = File::options().write(true).open(image).or_fail("the image");
    file.write_all_at(bytes, at).or_fail("the image");
}

#[test]
#[ignore = "root: rights of root"]
fn hybrid_images_are_imported_as_raw_disks() {
    for path in hybrids() {
        check(&copy(&path, &tempfile::tempdir().unwrap()), "raw");
    }
}

/// Copies the image into a folder, because the oracle writes its disk beside the image.
fn copy(path: &Path, folder: &tempfile::TempDir) -> PathBuf {
    let copy = folder.path().join("disk");
    std::fs::copy(path, &copy).or_fail(path.display());
    copy
}

/// A disk inside an image.
struct Case<'a> {
    subformat: Subformat,
    disk: &'a Path,
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.disk.display(), self.subformat)
    }
}

/// Writes each of `disks` in each of `subformats`; the import must make that disk again.
fn check_guests(subformats: &[Subformat], disks: &[PathBuf]) {
    let pairs =
        subformats.iter().flat_map(|subformat| disks.iter().map(move |disk| (*subformat, disk)));
    let cases = pairs.map(|(subformat, disk)| Case { subformat, disk });
    check_all(cases.collect::<Vec<_>>(), |case| {
        let folder = tempfile::tempdir().or_fail("a folder");
        let image = folder.path().join("image");
        case.subformat.write(case.disk, &image);
        check(&image, case.subformat.format);
    });
}

#[test]
#[ignore = "root: rights of root"]
fn images_may_contain_hybrids_and_partitioned_disks() {
    let folder = tempfile::tempdir().unwrap();
    let gpt = folder.path().join("gpt");
    gpt_disk(&gpt);
    let [.., iso, floppy] = hybrids();
    check_guests(&SUBFORMATS, &[gpt, iso, floppy]);
}

#[test]
#[ignore = "root: rights of root"]
fn images_may_have_clusters_of_hybrids_where_marks_are_looked_for() {
    let options = [
        "cluster_size=512",
        "cluster_size=1k",
        "cluster_size=2k",
        "cluster_size=4k",
        "cluster_size=8k",
        "cluster_size=16k",
        "cluster_size=32k",
    ];
    check_guests(&options.map(|options| Subformat::new("qcow2", options)), &hybrids());
}

#[test]
#[ignore = "tools: qemu-img"]
fn polyglots_are_refused_with_both_names_unless_a_format_is_given() {
    let names = [
        ("qcow2", "qcow2"),
        ("vmdk", "vmdk"),
        ("vdi", "vdi"),
        ("vpc", "vpc (VHD)"),
        ("vhdx", "vhdx"),
    ];
    for (format, name) in names {
        for polyglot in MARKS {
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name);
            std::fs::write(path("disk"), disk::content(1, 1 << 20)).unwrap();
            Subformat::new(format, "").write(&path("disk"), &path("image"));
            mark(&path("image"), polyglot);
            let (second, ..) = polyglot;
            refused(&path("image"), &format!("could be in {name} or {second} format"));
            let import = |format: &str| {
                let program = Program::new(crate::BINARY);
                let program = program.args(["import", "--format", format]);
                program.arg(path("image")).arg(path("target")).run()
            };
            import("raw").assert_success("as raw");
            assert!(read(&path("target")) == read(&path("image")));
            std::fs::remove_file(path("target")).unwrap();
            // If the mark has damaged the image, it is refused; otherwise qemu-img reads the same.
            let finished = import(format);
            if finished.code() == 0 {
                assert!(tools::qemu_converts(format, &path("image"), &path("raw")));
                assert!(read(&path("target")) == read(&path("raw")), "{name} and {second}");
            } else {
                finished.assert_failure(4, "");
                assert!(!finished.stderr.contains("could be"), "{}", finished.stderr);
            }
        }
    }
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).or_fail(path.display())
}
