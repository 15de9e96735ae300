//! VMDK images other than those that `qemu-img convert` writes.

use std::path::{Path, PathBuf};

use testkit::fail::OrFail;
use testkit::images::Subformat;
use testkit::images::vmdk::{Grain, Tables, Vmdk, descriptor};
use testkit::random::Random;
use testkit::{disk, tools};

use crate::formats::check::{Known, Route, Target, check, refused};

fn written(folder: &Path, bytes: &[u8]) -> PathBuf {
    let image = folder.join("image.vmdk");
    std::fs::write(&image, bytes).or_fail("the image");
    image
}

/// A disk of three tables of 64 KiB grains, most of them holes. The last grain is cut short.
fn usual(tables: Tables, compressed: bool, is_shuffled: bool) -> Vmdk {
    let mut random = Random::new(1);
    let mut bits = || {
        let [high, low, ..] = random.bits().to_le_bytes();
        u16::from_le_bytes([high, low])
    };
    let mut grain = || match bits() % 10 {
        0 => Grain::Zeroed,
        1 | 2 => Grain::Data(bits().to_le_bytes()[0]),
        _ => Grain::Hole,
    };
    let grains: Vec<Grain> = (0..1100).map(|_| grain()).collect();
    let keys = (0..grains.len()).map(|_| bits());
    Vmdk {
        grain_sectors: 128,
        table_entries: 512,
        cut_sectors: 77,
        tables,
        compressed,
        order: if is_shuffled { keys.collect() } else { Vec::new() },
        grains,
    }
}

/// VirtualBox writes directory and tables twice, before the grains. Stream-optimized images of
/// VirtualBox and VMware have markers, tables behind their grains, and a footer.
#[test]
#[ignore = "root: rights of root"]
fn images_as_vmware_and_virtualbox_write_them_are_identical() {
    for is_shuffled in [false, true] {
        for (tables, compressed) in [(Tables::First, false), (Tables::Footer, true)] {
            let folder = tempfile::tempdir().unwrap();
            let vmdk = usual(tables, compressed, is_shuffled);
            let image = written(folder.path(), &vmdk.build());
            check(&image, "vmdk");
            // This checks the builder: qemu-img must read the disk that it was meant to write.
            assert!(std::fs::read(folder.path().join("image.vmdk.raw")).unwrap() == vmdk.disk());
        }
    }
}

#[test]
#[ignore = "root: rights of root"]
fn images_in_unusual_orders_are_identical() {
    for is_shuffled in [false, true] {
        for (tables, compressed) in
            [(Tables::First, true), (Tables::Last, false), (Tables::Last, true)]
        {
            let folder = tempfile::tempdir().unwrap();
            let image = written(folder.path(), &usual(tables, compressed, is_shuffled).build());
            check(&image, "vmdk");
        }
    }
}

#[test]
#[ignore = "root: rights of root"]
fn grains_without_markers_need_their_tables_first() {
    let folder = tempfile::tempdir().unwrap();
    let image = written(folder.path(), &usual(Tables::Footer, false, true).build());
    Known::new(&image, "vmdk").import(Route::Ranged, Target::File);
    let finished = testkit::process::Program::new(crate::BINARY)
        .args(["import", "-"])
        .arg(folder.path().join("target"))
        .stdin_file(&image)
        .run();
    finished.assert_failure(4, "serve it uncompressed from a server that supports ranges");
}

#[test]
#[ignore = "root: rights of root"]
fn grown_and_written_images_are_identical() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("disk"), disk::sparse_content(1, 5 << 20, 4)).unwrap();
    Subformat::new("vmdk", "subformat=monolithicSparse").write(&path("disk"), &path("image"));
    let script = "write -P 7 4M 1M\nwrite -P 9 100k 3k\nwrite -z 1M 640k\n";
    tools::filter("qemu-io", ["-f", "vmdk", path("image").to_str().unwrap()], script.as_bytes());
    check(&path("image"), "vmdk");
}

/// Three descriptors that name other files; the tests of `diskimage` try all kinds.
#[test]
fn images_with_data_in_other_files_are_refused_by_name() {
    let whole = usual(Tables::First, false, false).build();
    let with = |text: String| {
        let mut image = whole.clone();
        image[512..21 * 512].fill(0);
        image[512..512 + text.len()].copy_from_slice(text.as_bytes());
        image
    };
    let own = "RW 140723 SPARSE \"image.vmdk\"";
    let passwd = "RW 8 FLAT \"/etc/passwd\" 0";
    let cases = [
        (with(descriptor("monolithicSparse", &[own, passwd])), "\"/etc/passwd\" (an extent)"),
        (
            with(descriptor("monolithicSparse", &[own]) + "parentFileNameHint=\"/etc/shadow\"\n"),
            "only the differences to another \"/etc/shadow\"",
        ),
        (descriptor("monolithicFlat", &[passwd]).into_bytes(), "\"/etc/passwd\""),
    ];
    for (image, sentence) in cases {
        let folder = tempfile::tempdir().unwrap();
        refused(&written(folder.path(), &image), sentence);
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn subformats_of_several_files_are_refused_by_name() {
    for (subformat, extent) in [
        ("monolithicFlat", "image-flat.vmdk"),
        ("twoGbMaxExtentSparse", "image-s001.vmdk"),
        ("twoGbMaxExtentFlat", "image-f001.vmdk"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image.vmdk");
        let option = format!("subformat={subformat}");
        let words = ["create", "-q", "-f", "vmdk", "-o", &option, image.to_str().unwrap(), "3G"];
        tools::run("qemu-img", words);
        refused(&image, subformat);
        refused(&image, extent);
        if subformat == "twoGbMaxExtentSparse" {
            refused(&folder.path().join(extent), "only one of the files");
        }
    }
}

#[test]
fn unsupported_kinds_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let se_sparse = [0xcafe_babe_u64.to_le_bytes(), 0x2_0000_0001_u64.to_le_bytes()].concat();
    for (head, name) in [(&b"COWD\x01\0\0\0"[..], "COWD"), (&se_sparse, "seSparse")] {
        let mut image = head.to_vec();
        image.resize(1 << 20, 0);
        refused(&written(folder.path(), &image), name);
    }
}

/// A byte of compressed data is changed, which the checksum of the grain reveals.
#[test]
fn damaged_grains_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for tables in [Tables::First, Tables::Footer] {
        let mut image = usual(tables, true, false).build();
        // In the first grain, behind its marker and the two bytes of a zlib header.
        let overhead = u64::from_le_bytes(image[64..72].try_into().unwrap());
        let first = usize::try_from(overhead).unwrap() * 512;
        image[first + 30] ^= 1;
        refused(&written(folder.path(), &image), "zlib");
    }
}
