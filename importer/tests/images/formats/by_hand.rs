//! Images other than those that `qemu-img convert` writes, most of them built byte by byte: each
//! becomes the disk that qemu-img reads, or is refused.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use testkit::cases::{Named, check_all};
use testkit::fail::OrFail;
use testkit::images::qcow2::{CORRUPT, DIRTY, Guest, Qcow2};
use testkit::images::vdi::{self, Vdi};
use testkit::images::vhd::{Dynamic, Footer, Table, fixed};
use testkit::images::vhdx::{self, Vhdx};
use testkit::images::vmdk::{ExportLayout, Grain, Tables, Vmdk, descriptor};
use testkit::process::Program;
use testkit::random::Random;
use testkit::{disk, tools};

use super::check::{Known, Route, Target, check, importer, refused};

const MIB: usize = 1 << 20;

/// An image with a name.
type Image = Named<String, Vec<u8>>;

fn write(folder: &tempfile::TempDir, bytes: &[u8]) -> PathBuf {
    let image = folder.path().join("image");
    std::fs::write(&image, bytes).or_fail("the image");
    image
}

/// Imports the images by both routes, and compares the disks with those that qemu-img reads.
fn check_images(format: &str, images: Vec<Image>) {
    check_all(images, |Named(_, bytes)| {
        let folder = tempfile::tempdir().or_fail("a folder");
        check(&write(&folder, bytes), format);
    });
}

/// A disk of six blocks: four in no order, of which two are the same, one discarded and one never
/// written. The image also has blocks that nothing maps.
fn vdi() -> Vdi {
    use vdi::Block::{At, Free, Zero};
    let blocks = (0..7).map(|seed| disk::content(seed, 1 << 20)).collect();
    Vdi::new((6 << 20) - 512, vec![At(3), At(0), At(5), At(3), Zero, Free], blocks)
}

#[test]
#[ignore = "root: rights of root"]
fn vdi_images_of_all_writers_are_read() {
    let name = |name: &str, vdi: Vdi| Named(name.to_owned(), vdi.build());
    // VirtualBox 2 and earlier: map and data follow the header. QEMU states 384 bytes of header.
    let old = |text, header_bytes| Vdi {
        text,
        header_bytes,
        map_offset: 512,
        data_offset: 1024,
        ..vdi()
    };
    let mut map_last = Vdi { map_offset: 32 << 20, data_offset: 1 << 20, ..vdi() };
    // No block is mapped twice: it would be kept for ever, and no program writes that.
    map_last.map[3] = vdi::Block::At(4);
    check_images(
        "vdi",
        vec![
            name("blocks in any order", vdi()),
            name("innotek", old("<<< innotek VirtualBox Disk Image >>>\n", 400)),
            name("Sun", old("<<< Sun VirtualBox Disk Image >>>\n", 384)),
            name("without text", old("", 400)),
            name("static", Vdi { kind: 2, ..vdi() }),
            name("map behind the blocks", map_last),
            name("an odd number of bytes", Vdi { virtual_size: (5 << 20) + 1, ..vdi() }),
            name("more blocks than needed", Vdi { virtual_size: 512, ..vdi() }),
            name("no byte", Vdi { virtual_size: 0, ..vdi() }),
        ],
    );
}

/// A disk of 9 MiB and one sector, whose blocks of 2 MiB are not in order.
fn vhd() -> Dynamic {
    let block = |index: usize| (index, disk::content(index as u64, 2 << 20));
    Dynamic { blocks: [3, 0, 4, 1].map(block).into(), ..Dynamic::new((9 << 20) + 512, 2 * MIB) }
}

/// A fixed disk of whole MiB, as Azure requires.
fn fixed_vhd(creator: [u8; 4]) -> Vec<u8> {
    fixed(&disk::content(1, 9 << 20), &Footer { creator, ..Footer::fixed(9 << 20) })
}

#[test]
#[ignore = "root: rights of root"]
fn vhd_images_in_any_order_are_read() {
    let name = |name: &str, vhd: Dynamic| Named(name.to_owned(), vhd.bytes());
    let mut images = vec![
        name("blocks in any order", vhd()),
        name("table behind the blocks", Dynamic { table: Table::Last, spare_entries: 3, ..vhd() }),
        // QEMU reads a block completely, whatever its bitmap says.
        name("no sector in the bitmap", Dynamic { bitmap: 0, ..vhd() }),
        name("half of the bitmap", Dynamic { bitmap: 0x0f, ..vhd() }),
    ];
    // Size or geometry counts. These creators are treated alike by all versions of QEMU. In a
    // fixed disk, the geometry falls short of the size by less than a cylinder.
    for creator in [b"win ", b"vpc ", b"qemu"] {
        images.push(Named(format!("fixed by {creator:?}"), fixed_vhd(*creator)));
        for geometry in [(200, 4, 17), (65_535, 16, 255)] {
            let mut vhd = vhd();
            (vhd.footer.creator, vhd.footer.geometry) = (*creator, geometry);
            images.push(name(&format!("{creator:?} with {geometry:?}"), vhd));
        }
    }
    check_images("vpc", images);
}

#[test]
fn a_fixed_vhd_loses_its_footer_unless_it_is_imported_as_raw() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let bytes = fixed_vhd(*b"win ");
    let (image, target) = (write(&folder, &bytes), folder.path().join("disk"));
    for (format, length) in [("vpc", 9 * MIB), ("vhd", 9 * MIB), ("raw", bytes.len())] {
        let program = Program::new(crate::BINARY).args(["import", "--force", "--format", format]);
        program.arg(&image).arg(&target).run().assert_success(format);
        assert!(std::fs::read(&target).or_fail(format) == bytes[..length], "--format {format}");
    }
}

/// A disk of 9.5 MiB, whose blocks of 2 MiB are not in order; one of them has this state.
fn vhdx(state: u8) -> Vhdx {
    use vhdx::Block::{Absent, Present};
    let block = |index: usize| (index, Present(disk::content(index as u64, 2 << 20)));
    Vhdx {
        blocks: vec![block(4), (1, Absent(state)), block(0), (2, Absent(3)), block(3)],
        ..Vhdx::new((9 << 20) + (512 << 10), 2 * MIB)
    }
}

#[test]
#[ignore = "root: rights of root"]
fn vhdx_images_in_any_order_and_state_are_read() {
    let mut images: Vec<Image> = [0, 1, 2, 3, 5]
        .map(|state| Named(format!("a block of state {state}"), vhdx(state).bytes()))
        .into();
    let last = Vhdx { table_last: true, sequence: [9, 8], is_fixed: true, ..vhdx(2) };
    images.push(Named("table behind the blocks".to_owned(), last.bytes()));
    // Only the log of the current header counts.
    let logged = Vhdx { log_guid: [1, 0], ..vhdx(2) };
    images.push(Named("an old log".to_owned(), logged.bytes()));
    check_images("vhdx", images);
}

/// QEMU does not support these sectors, so the disk is compared with the content of the blocks.
#[test]
fn a_vhdx_with_sectors_of_4096_bytes_is_read() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let vhdx = Vhdx { sector_size: 4096, ..vhdx(2) };
    let (image, target) = (write(&folder, &vhdx.bytes()), folder.path().join("disk"));
    for route in super::check::ROUTES {
        importer(&image, route, &target).arg("--force").run().assert_success("large sectors");
        assert!(std::fs::read(&target).or_fail("the disk") == vhdx.disk(), "{route:?}");
    }
}

/// A disk of three tables of 64 KiB grains, most of them holes. The last grain is cut short.
fn vmdk(tables: Tables, compressed: bool, is_shuffled: bool) -> Vmdk {
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
fn vmdk_images_in_any_order_are_read() {
    let mut images = Vec::new();
    for (tables, compressed) in [
        (Tables::First, false),
        (Tables::First, true),
        (Tables::Last, false),
        (Tables::Last, true),
        (Tables::Footer, true),
        (Tables::Exported(ExportLayout::XEN_ORCHESTRA), true),
    ] {
        for is_shuffled in [false, true] {
            let name = format!("{tables:?}, compressed {compressed}, shuffled {is_shuffled}");
            images.push(Named(name, vmdk(tables, compressed, is_shuffled).build()));
        }
    }
    check_images("vmdk", images);
}

#[test]
#[ignore = "root: rights of root"]
fn images_that_were_written_in_random_order_are_read() {
    for format in ["vdi", "vmdk"] {
        let folder = tempfile::tempdir().or_fail("a folder");
        let image = folder.path().join("image");
        let create = ["create", "-q", "-f", format].map(OsStr::new);
        tools::run("qemu-img", create.into_iter().chain([image.as_os_str(), "9000k".as_ref()]));
        let script = "write -P 1 5M 3k\nwrite -P 2 0 1M\nwrite -P 3 2047k 1M\nwrite -z 0 640k\n";
        let words = ["-f".as_ref(), format.as_ref(), image.as_os_str()];
        tools::filter("qemu-io", words, script.as_bytes());
        check(&image, format);
    }
}

/// log2 of the cluster size of the qcow2 images; an L2 table maps 64 clusters of that size.
const CLUSTER_BITS: u32 = 9;

/// Four tables that share a data cluster and a compressed one, with several references in a
/// table, and that have others of their own.
fn entangled() -> Vec<Guest> {
    let mut guest = vec![Guest::Hole; 4 * 64];
    for (number, table) in (10..).zip(guest.chunks_mut(64)) {
        table[3] = Guest::Data(1);
        table[4] = Guest::Data(number);
        table[5] = Guest::Data(1);
        table[6] = Guest::Compressed(2);
        table[7] = Guest::Compressed(number);
        table[8] = Guest::ZeroAllocated(1);
    }
    guest
}

#[test]
#[ignore = "root: rights of root"]
fn qcow2_clusters_with_several_references_are_read() {
    // Sort keys of parts: refcount table and block, L1 table, snapshot table, four L2 tables, data.
    let orders = [
        ("tables between", [0, 0, 0, 0, 0, 3, 4, 5, 1, 6, 2, 7, 2, 8]),
        ("all tables last", [9, 9, 9, 9, 9, 8, 7, 6, 0, 0, 0, 0, 0, 0]),
        ("refcounts last", [9, 9, 0, 0, 0, 3, 4, 5, 1, 1, 1, 1, 1, 1]),
    ];
    let mut images = Vec::new();
    for (name, order) in orders {
        for (refcount_order, flags) in [(3, 0), (4, DIRTY), (6, CORRUPT)] {
            let spec = Qcow2::new(CLUSTER_BITS, entangled());
            let spec = Qcow2 { refcount_order, flags, order: order.into(), ..spec };
            images.push(Named(format!("{name}, flags {flags}"), spec.build().image));
        }
    }
    check_images("qcow2", images);
}

/// Two tables with this cluster in common.
fn two_tables() -> Vec<Guest> {
    let mut guest = vec![Guest::Hole; 65];
    (guest[0], guest[64]) = (Guest::Data(1), Guest::Data(1));
    guest
}

#[test]
#[ignore = "root: rights of root"]
fn images_that_need_a_second_pass_are_refused_from_a_pipe() {
    // With a snapshot, a refcount of 2 does not show whether the disk itself has two references.
    let shared = Qcow2 {
        snapshots: vec![vec![Guest::Data(2)]],
        // The second table is the last part but one; the cluster of both tables comes before it.
        order: vec![0, 0, 0, 0, 0, 0, 3, 0, 1, 4],
        ..Qcow2::new(CLUSTER_BITS, two_tables())
    };
    // Grains without markers need their tables first.
    let unmarked = vmdk(Tables::Footer, false, true);
    for (format, bytes, sentence) in [
        ("qcow2", shared.build().image, "cannot be read in one pass"),
        ("vmdk", unmarked.build(), "serve it uncompressed from a server that supports ranges"),
    ] {
        let folder = tempfile::tempdir().or_fail("a folder");
        let image = write(&folder, &bytes);
        Known::new(&image, format).import(Route::Ranged, Target::File);
        let target = folder.path().join("disk.img");
        let finished = importer(&image, Route::OnePass, &target).run();
        finished.assert_failure(4, sentence);
        assert!(!finished.stderr.contains("refcount") && !target.exists(), "{finished:?}");
    }
}

/// Returns the bytes of `image` with `value` at `offset`.
fn patched(mut image: Vec<u8>, offset: usize, value: &[u8]) -> Vec<u8> {
    image[offset..offset + value.len()].copy_from_slice(value);
    image
}

/// A compressed VMDK with a changed byte, which the checksum of its grain reveals.
fn damaged_grain(tables: Tables) -> Vec<u8> {
    let mut image = vmdk(tables, true, false).build();
    // In the first grain, behind its marker and the two bytes of a zlib header.
    let overhead = u64::from_le_bytes(image[64..72].try_into().or_fail("eight bytes"));
    image[usize::try_from(overhead).or_fail("a small image") * 512 + 30] ^= 1;
    image
}

/// The tests of `diskimage` and `datapath` try all kinds of damage. These are what users may have.
#[test]
fn images_that_are_not_supported_are_refused_with_the_reason() {
    let qcow2 = || Qcow2::new(CLUSTER_BITS, two_tables()).build().image;
    let (mut beyond, mut far) = (vdi(), vdi());
    (beyond.map[0], far.map[0]) = (vdi::Block::At(7), vdi::Block::At(0xffff_fffd));
    let own = "RW 140723 SPARSE \"image.vmdk\"";
    let passwd = "RW 8 FLAT \"/etc/passwd\" 0";
    let with = |text: String| {
        let image = patched(vmdk(Tables::First, false, false).build(), 512, &[0; 20 * 512]);
        patched(image, 512, text.as_bytes())
    };
    let two_files = descriptor("monolithicSparse", &[own, passwd]);
    let parent = descriptor("monolithicSparse", &[own]) + "parentFileNameHint=\"/etc/shadow\"\n";
    let flat = descriptor("monolithicFlat", &[passwd]);
    let begins = |head: &[u8]| [head, &[0; MIB]].concat();
    let se_sparse = [0xcafe_babe_u64.to_le_bytes(), 0x2_0000_0001_u64.to_le_bytes()].concat();
    let replayed = Vhdx { log_guid: [0, 1], ..vhdx(2) }.bytes();
    let third = 1_u64 << 63;
    for (bytes, sentence) in [
        // qcow2.rst, "Header": crypt method, L1 size, incompatible and autoclear features.
        (patched(qcow2(), 32, &1_u32.to_be_bytes()), "encrypted"),
        (patched(qcow2(), 32, &2_u32.to_be_bytes()), "encrypted"),
        (patched(qcow2(), 36, &u32::MAX.to_be_bytes()), "L1 size too big"),
        (patched(qcow2(), 72, &third.to_be_bytes()), "unsupported incompatible feature"),
        (patched(qcow2(), 72, &4_u64.to_be_bytes()), "external data file"),
        (patched(qcow2(), 88, &2_u64.to_be_bytes()), "external data file"),
        (begins(b"QFI\xfb\0\0\0\x01"), "the image is in qcow format"),
        (begins(b"QED\0"), "the image is in qed format"),
        (begins(b"WithoutFreeSpace"), "the image is in parallels format"),
        // VirtualBox, `VDICore.h`, `VDIHEADER1PLUS`: image types 3 and 4 need a parent.
        (Vdi { kind: 3, ..vdi() }.build(), "the vdi image stores only the differences to another"),
        (Vdi { kind: 4, ..vdi() }.build(), "the vdi image stores only the differences to another"),
        (beyond.build(), "the image is truncated"),
        (far.build(), "the image is truncated"),
        (replayed, "replay the log with `qemu-img check -r all`"),
        (with(two_files), "\"/etc/passwd\" (an extent)"),
        (with(parent), "only the differences to another \"/etc/shadow\""),
        (flat.into_bytes(), "\"/etc/passwd\""),
        (begins(b"COWD\x01\0\0\0"), "COWD"),
        (begins(&se_sparse), "seSparse"),
        (damaged_grain(Tables::First), "zlib"),
        (damaged_grain(Tables::Footer), "zlib"),
    ] {
        let folder = tempfile::tempdir().or_fail("a folder");
        refused(&write(&folder, &bytes), sentence);
    }
}

/// Imports the image from a pipe. Returns what the importer said.
fn accepted(bytes: &[u8], expected: &Path) -> String {
    let folder = tempfile::tempdir().or_fail("a folder");
    let (image, target) = (write(&folder, bytes), folder.path().join("disk.img"));
    let finished = importer(&image, Route::OnePass, &target).run();
    finished.assert_success("a qcow2 image");
    let length = expected.metadata().or_fail("the disk").len();
    disk::assert_same(&target, expected, length, "a qcow2 image");
    finished.stderr
}

#[test]
#[ignore = "tools: qemu-img"]
fn unknown_features_of_qcow2_and_shared_tables_are_told_from_damage() {
    use testkit::images::{Content, Spec};
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = Spec::new(Content::Sparse).build(folder.path(), "image");
    let bytes = std::fs::read(&image.qcow2).or_fail("the image");
    // Compatible and autoclear features: all bits but the one for a raw external data file, which
    // QEMU refuses without such a file.
    let mut features = [0xFF; 16];
    features[15] &= !2;
    accepted(&patched(bytes.clone(), 80, &features), &image.raw);
    let said = accepted(&patched(bytes, 72, &CORRUPT.to_be_bytes()), &image.raw);
    assert!(said.contains("marked as corrupt"), "{said}");
    // The builder stores equal tables once.
    let mut guest = two_tables();
    guest.resize(128, Guest::Hole);
    let shared = write(&folder, &Qcow2::new(CLUSTER_BITS, guest).build().image);
    for route in super::check::ROUTES {
        let finished = importer(&shared, route, &folder.path().join("disk.img")).run();
        finished.assert_failure(4, "two entries share a table");
        assert!(!finished.stderr.contains("corrupt"), "{}", finished.stderr);
    }
}
