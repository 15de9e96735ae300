//! Files of several formats: hybrid images, alone and inside others, and deceptive polyglots.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use testkit::cases::{Named, check_all};
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

/// Copies the image into a folder, because the oracle writes its disk beside the image.
fn copy(path: &Path, folder: &tempfile::TempDir) -> PathBuf {
    let copy = folder.path().join("disk");
    std::fs::copy(path, &copy).or_fail(path.display());
    copy
}

#[test]
#[ignore = "server: memtest86+, ipxe, grub-rescue-pc"]
fn hybrid_images_are_imported_as_raw_disks() {
    for path in hybrids() {
        check(&copy(&path, &tempfile::tempdir().or_fail("a folder")), "raw");
    }
}

/// The small clusters end where marks of hybrids are looked for.
#[test]
#[ignore = "slow: 5 s of CPU time"]
fn images_may_contain_hybrids_and_partitioned_disks() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let gpt = folder.path().join("gpt");
    gpt_disk(&gpt);
    let [.., iso, floppy] = hybrids();
    let small = [
        "cluster_size=512",
        "cluster_size=1k",
        "cluster_size=2k",
        "cluster_size=4k",
        "cluster_size=8k",
        "cluster_size=16k",
        "cluster_size=32k",
    ];
    let small = small.map(|options| Subformat::new("qcow2", options));
    let mut cases = Vec::new();
    for subformat in SUBFORMATS.into_iter().chain(small) {
        for disk in [&gpt, &iso, &floppy] {
            cases.push(Named(format!("{} in {subformat}", disk.display()), (subformat, disk)));
        }
    }
    check_all(cases, |Named(_, (subformat, disk))| {
        let folder = tempfile::tempdir().or_fail("a folder");
        let image = folder.path().join("image");
        subformat.write(disk, &image);
        check(&image, subformat.format);
    });
}

#[test]
#[ignore = "tools: qemu-img"]
fn polyglots_are_refused_with_both_names_unless_a_format_is_given() {
    for (format, name) in [
        ("qcow2", "qcow2"),
        ("vmdk", "vmdk"),
        ("vdi", "vdi"),
        ("vpc", "vpc (VHD)"),
        ("vhdx", "vhdx"),
    ] {
        let folder = tempfile::tempdir().or_fail("a folder");
        let path = |name: &str| folder.path().join(name);
        let read = |name: &str| std::fs::read(path(name)).or_fail(name);
        std::fs::write(path("disk"), disk::content(1, 1 << 20)).or_fail("a disk");
        for polyglot in MARKS {
            Subformat::new(format, "").write(&path("disk"), &path("image"));
            mark(&path("image"), polyglot);
            let (second, ..) = polyglot;
            refused(&path("image"), &format!("could be in {name} or {second} format"));
            let import = |format: &str| {
                let program = Program::new(crate::BINARY).args(["import", "--force"]);
                program.args(["--format", format]).arg(path("image")).arg(path("target")).run()
            };
            import("raw").assert_success("as raw");
            assert!(read("target") == read("image"));
            // If the mark has damaged the image, it is refused; otherwise qemu-img reads the same.
            let finished = import(format);
            if finished.code() == 0 {
                assert!(tools::qemu_converts(format, &path("image"), &path("raw")));
                assert!(read("target") == read("raw"), "{name} and {second}");
            } else {
                finished.assert_failure(4, "");
                assert!(!finished.stderr.contains("could be"), "{}", finished.stderr);
            }
        }
    }
}
