//! Known attacks on programs that read disk images, by name. Each ends in an error or in the disk
//! that qemu-img reads, in bounded time and memory, and opens no other file.
//!
//! Attacks on single fields of qcow2 tables are in `importer/tests/images/hostile.rs`, bombs of
//! compressed layers in `oracle.rs` beside it, and archives in
//! `crates/datapath/tests/transfers/archive/attacks.rs`. SECURITY.md has a table of all of them.

use std::ffi::OsStr;
use std::path::Path;

use testkit::fail::OrFail;
use testkit::images::vdi::{BLOCK_BYTES, Block, Vdi};
use testkit::images::vhd::{self, Dynamic};
use testkit::images::vhdx::Vhdx;
use testkit::images::vmdk::{Grain, Tables, Vmdk, descriptor};
use testkit::images::{Compression, Content, Spec};
use testkit::process::{Finished, Program};
use testkit::{disk, tools};

/// Imports the image as a file and from a pipe within the bounds, and calls `check` each time.
fn attack(image: &[u8], options: &[&str], check: impl Fn(&Finished, &Path)) {
    let folder = tempfile::tempdir().or_fail("a folder");
    let (file, target) = (folder.path().join("image"), folder.path().join("disk.img"));
    std::fs::write(&file, image).or_fail("the image");
    let importer = |source: &Path| {
        Program::new(crate::BINARY).arg("import").args(options).arg(source).arg(&target)
    };
    for program in [importer(&file), importer(Path::new("-")).stdin_file(&file)] {
        let finished = program.measured().run();
        assert!(!finished.crashed(), "{}", finished.stderr);
        crate::assert_peak(&finished, "an attack");
        check(&finished, &target);
        assert_eq!(target.exists(), finished.code() == 0, "{finished:?}");
        std::fs::remove_file(&target).ok();
    }
}

/// Asserts that the image is refused with this sentence.
fn refused(image: &[u8], sentence: &str) {
    attack(image, &[], |finished, _| finished.assert_failure(4, sentence));
}

/// Asserts that the disk is refused as too large for a volume of 1 GiB. The size is given
/// because the largest sparse file differs between file systems.
fn too_large(image: &[u8]) {
    attack(image, &["--size", "1Gi"], |finished, _| {
        finished.assert_failure(5, "bytes, and the target has room for ");
    });
}

/// Asserts that the import ends with one of these exit codes.
fn ends(image: &[u8], codes: &[i32]) {
    attack(image, &[], |finished, _| assert!(codes.contains(&finished.code()), "{finished:?}"));
}

/// Asserts that the image becomes the disk that qemu-img makes, or that it is refused with this
/// sentence, if there is one.
fn harmless(image: &[u8], format: &str, or_refused: Option<&str>) {
    let folder = tempfile::tempdir().or_fail("a folder");
    let (file, raw) = (folder.path().join("image"), folder.path().join("raw"));
    std::fs::write(&file, image).or_fail("the image");
    let is_read = tools::qemu_converts(format, &file, &raw);
    attack(image, &[], |finished, target| match (finished.code(), or_refused) {
        (4, Some(sentence)) => finished.assert_failure(4, sentence),
        _ => {
            finished.assert_success(format);
            assert!(is_read, "qemu-img refuses it");
            let length = raw.metadata().or_fail("qemu-img's disk").len();
            disk::assert_same(target, &raw, length, format);
        }
    });
}

/// Returns an image that qemu-img creates.
fn created(format: &str, options: &[&str], size: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = folder.path().join("image");
    let words = ["create", "-q", "-u", "-f", format];
    let words = words.iter().chain(options).map(OsStr::new);
    tools::run("qemu-img", words.chain([image.as_os_str(), size.as_ref()]));
    std::fs::read(image).or_fail("the image")
}

/// Returns the bytes of a qcow2 image.
fn qcow2(spec: &Spec) -> Vec<u8> {
    let folder = tempfile::tempdir().or_fail("a folder");
    std::fs::read(spec.build(folder.path(), "image").qcow2).or_fail("the image")
}

/// Returns the offset in the table entry at `at`, without the flags of the entry.
fn be64(image: &[u8], at: usize) -> usize {
    const OFFSET_BITS: u64 = 0x00ff_ffff_ffff_fe00;
    let bytes = image[at..at + 8].try_into().or_fail("eight bytes");
    usize::try_from(u64::from_be_bytes(bytes) & OFFSET_BITS).or_fail("an offset")
}

/// Returns `image` with `value` at `offset`.
fn patched(image: &[u8], offset: usize, value: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    image[offset..offset + value.len()].copy_from_slice(value);
    image
}

#[test]
#[ignore = "alone: measures memory"]
fn other_files_are_refused_and_named() {
    for name in [
        "/etc/passwd",
        "../../secret.raw",
        "json:{\"driver\":\"file\",\"filename\":\"/etc/passwd\"}",
        "nbd://127.0.0.1:1/export",
        "/dev/vda",
    ] {
        let chain = created("qcow2", &["-b", name, "-F", "raw"], "1M");
        refused(&chain, name);
        refused(&chain, "other files are never opened");
    }
    let folder = tempfile::tempdir().or_fail("a folder");
    let name = folder.path().join("data").display().to_string();
    let option = format!("data_file={name},data_file_raw=on");
    refused(&created("qcow2", &["-o", &option], "1M"), &name);
    for (kind, extent, name) in [
        ("monolithicFlat", "RW 2048 FLAT \"/etc/passwd\" 0", "/etc/passwd"),
        ("twoGbMaxExtentSparse", "RW 2048 SPARSE \"../other-s001.vmdk\"", "../other-s001.vmdk"),
        ("fullDevice", "RW 2048 FLAT \"/dev/vda\" 0", "/dev/vda"),
        ("vmfs", "RW 2048 VMFS \"disk-flat.vmdk\"", "disk-flat.vmdk"),
    ] {
        refused(descriptor(kind, &[extent]).as_bytes(), name);
    }
}

#[test]
#[ignore = "alone: measures memory"]
fn disks_that_fit_nowhere_are_refused_before_anything_is_written() {
    too_large(&created("qcow2", &["-o", "cluster_size=2M"], "1P"));
    too_large(&Vhdx::new(64 << 40, 256 << 20).bytes());
    let mut vdi = Vdi::new(1 << 20, vec![Block::Free], Vec::new());
    vdi.patches.insert(0x170, (0x3fff_ffff_u64 << 20).to_le_bytes().into());
    vdi.patches.insert(0x180, 0x3fff_ffff_u32.to_le_bytes().into());
    // The image lacks the map that such a disk needs, which may be noticed first.
    ends(&vdi.build(), &[4, 5]);
    let vmdk = Vmdk::small(Tables::First, false, vec![Grain::Data(1)]).build();
    ends(&patched(&vmdk, 12, &(1_u64 << 41).to_le_bytes()), &[4, 5]);
    // A VMDK of 1 GiB without data becomes a hole.
    let sparse = created("vmdk", &["-o", "subformat=monolithicSparse"], "1G");
    harmless(&sparse, "vmdk", None);
}

#[test]
#[ignore = "alone: measures memory"]
fn tables_that_are_huge_or_refer_to_themselves_or_each_other_do_not_loop() {
    let image =
        qcow2(&Spec { cluster_size: 512, virtual_size: 64 << 10, ..Spec::new(Content::Dense) });
    refused(&patched(&image, 36, &u32::MAX.to_be_bytes()), "L1 size too big");
    let l1 = be64(&image, 40);
    let l2 = be64(&image, l1);
    let table = |at: usize| (u64::try_from(at).or_fail("an offset") | 1 << 63).to_be_bytes();
    // Two L1 entries for one table; an L1 entry for the L1 table; an L2 entry for its own table.
    refused(&patched(&image, l1 + 8, &table(l2)), "share");
    ends(&patched(&image, l1, &table(l1)), &[0, 4]);
    ends(&patched(&image, l2, &table(l2)), &[0, 4]);
    // Two L2 entries for one cluster.
    ends(&patched(&image, l2 + 8, &image[l2..l2 + 8]), &[0, 4]);
    // A disk of 256 MiB whose 256 blocks are all the same block of 1 MiB.
    let blocks = vec![disk::content(1, BLOCK_BYTES as u64)];
    harmless(&Vdi::new(256 << 20, vec![Block::At(0); 256], blocks).build(), "vdi", None);
}

#[test]
#[ignore = "alone: measures memory"]
fn wrong_refcounts_never_change_the_disk() {
    for content in [Content::Snapshots, Content::RandomOrder] {
        let folder = tempfile::tempdir().or_fail("a folder");
        let spec = Spec { cluster_size: 4096, virtual_size: 2 << 20, ..Spec::new(content) };
        let image = spec.build(folder.path(), "image");
        let bytes = std::fs::read(&image.qcow2).or_fail("the image");
        let block = be64(&bytes, be64(&bytes, 48));
        for lie in [[0, 0], [0, 1], [0xff, 0xff]] {
            attack(&patched(&bytes, block, &lie.repeat(2048)), &[], |finished, target| {
                match finished.code() {
                    0 => disk::assert_same(target, &image.raw, image.virtual_size, "the disk"),
                    code => assert_eq!(code, 4, "{}", finished.stderr),
                }
            });
        }
    }
}

#[test]
#[ignore = "alone: measures memory"]
fn clusters_and_grains_that_inflate_beyond_their_size_are_refused() {
    /// A deflate stream of zeros: without gzip's header and trailer.
    fn bomb(zeros: usize) -> Vec<u8> {
        let gzip = tools::filter("gzip", ["-9nc"], &vec![0; zeros]);
        gzip[10..gzip.len() - 8].to_vec()
    }
    let spec = Spec { virtual_size: 256 << 10, ..Spec::new(Content::Dense) };
    let mut image = qcow2(&Spec { compression: Compression::Zlib, ..spec });
    let l2 = be64(&image, be64(&image, 40));
    let place = image.len().next_multiple_of(512);
    image.resize(place, 0);
    image.extend(bomb(64 << 20));
    image.resize(image.len().next_multiple_of(512), 0);
    // qcow2.rst, "Compressed Clusters Descriptor": bit 62, 127 more sectors, the offset.
    let entry = 1 << 62 | 127 << 54 | u64::try_from(place).or_fail("an offset");
    // Both results are right: qemu-img stops inflating when the cluster is full.
    harmless(&patched(&image, l2, &entry.to_be_bytes()), "qcow2", Some("does not inflate"));

    let vmdk = Vmdk::small(Tables::Footer, true, vec![Grain::Data(1), Grain::Data(2)]).build();
    // The first marker has the number of bytes of its grain's zlib stream (RFC 1950). The stream
    // inflates to 64 KiB and has a wrong checksum that nothing reaches; the grain has 4 KiB.
    let overhead = u64::from_le_bytes(vmdk[64..72].try_into().or_fail("eight bytes"));
    let marker = usize::try_from(overhead).or_fail("an offset") * 512;
    let mut bomb = [&[0x78, 0x9c], &bomb(64 << 10)[..], &[0; 4]].concat();
    let length = u32::try_from(bomb.len()).or_fail("a small bomb").to_le_bytes();
    bomb.resize(500, 0);
    let bomb = [&length[..], &bomb].concat();
    refused(&patched(&vmdk, marker + 8, &bomb), "does not inflate");
}

#[test]
#[ignore = "alone: measures memory"]
fn offsets_near_the_largest_number_do_not_overflow() {
    // Fields of a VMDK header: capacity, grain size, descriptor, redundant directory, overhead.
    let vmdk = Vmdk::small(Tables::First, false, vec![Grain::Data(1)]).build();
    for at in [12, 20, 28, 48, 64] {
        ends(&patched(&vmdk, at, &u64::MAX.to_le_bytes()), &[0, 4, 5]);
    }
    // VHD: the offsets of the dynamic header and of its table, with valid checksums.
    let vhd = Dynamic::new(4 << 20, 2 << 20).bytes();
    let mut header = patched(&vhd, 16, &(u64::MAX - 1).to_be_bytes());
    vhd::seal(&mut header[..512], 64);
    refused(&header, "invalid vpc (VHD) image");
    let mut table = patched(&vhd, 512 + 16, &(u64::MAX - 7).to_be_bytes());
    vhd::seal(&mut table[512..1536], 36);
    refused(&table, "cannot be at");
}
