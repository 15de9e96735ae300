//! Known attacks on programs that read disk images, by name. Each ends in an error or in the disk
//! that qemu-img reads, in bounded time and memory, and opens no other file.
//!
//! Attacks on single fields of qcow2 tables are in `importer/tests/images/hostile.rs`, bombs of
//! compressed layers in `oracle.rs` beside it, and archives in `crates/datapath/tests/transfers/archive/attacks.rs`. SECURITY.md
//! has a table of all of them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use testkit::fail::OrFail;
use testkit::images::vdi::{BLOCK_BYTES, Block, Vdi};
use testkit::images::vhd::Dynamic;
use testkit::images::vhdx::Vhdx;
use testkit::images::vmdk::{Grain, Tables, Vmdk, descriptor};
use testkit::images::{Compression, Content, Oracle, Spec, vhd};
use testkit::process::{Finished, PEAK_RSS_BYTES, Program};
use testkit::{disk, tools};

/// Size of a disk that fits on no file system here.
const HUGE: u64 = 1 << 50;

/// An image in a folder of its own.
struct Attack {
    folder: tempfile::TempDir,
    image: PathBuf,
}

impl Attack {
    fn new(image: &[u8]) -> Self {
        let attack = Self::empty();
        std::fs::write(&attack.image, image).or_fail("the image");
        attack
    }

    fn empty() -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        let image = folder.path().join("image");
        Self { folder, image }
    }

    /// Creates an image by qemu-img.
    fn created(format: &str, options: &[&str], size: &str) -> Self {
        let attack = Self::empty();
        let words = ["create", "-q", "-u", "-f", format];
        let words = words.iter().chain(options).map(OsStr::new);
        tools::run("qemu-img", words.chain([attack.image.as_os_str(), size.as_ref()]));
        attack
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("disk.img")
    }

    /// Imports the image as a file and from a pipe within the bounds, and calls `check` each time.
    fn run(&self, check: impl Fn(&Finished, &Path)) {
        self.run_with(&[], check);
    }

    fn run_with(&self, args: &[&str], check: impl Fn(&Finished, &Path)) {
        let importer = |source: &Path| {
            let program = Program::new(crate::BINARY);
            let program = program.arg("import").args(args).arg(source);
            program.arg(self.target())
        };
        for program in [importer(&self.image), importer(Path::new("-")).stdin_file(&self.image)] {
            let finished = program.measured().run();
            assert!(!finished.crashed(), "{}", finished.stderr);
            let peak = finished.peak_rss_bytes.or_fail("the peak of a finished program");
            assert!(peak <= PEAK_RSS_BYTES, "a peak of {peak} bytes of memory");
            check(&finished, &self.target());
            std::fs::remove_file(self.target()).ok();
        }
    }

    /// Asserts that the image is refused with this sentence, and that no target is left.
    fn refused(&self, sentence: &str) {
        self.run(|finished, target| {
            finished.assert_failure(4, sentence);
            assert!(!target.exists(), "the target was left behind");
        });
    }

    /// Asserts that the disk is refused as too large for a volume of 1 GiB. The size is given
    /// because the largest sparse file differs between file systems.
    fn too_large(&self) {
        self.run_with(&["--size", "1Gi"], |finished, target| {
            finished.assert_failure(5, "bytes, and the target has room for ");
            assert!(!target.exists(), "the target was left behind");
        });
    }

    /// Asserts that the disk is the one that qemu-img makes of the image.
    fn harmless(&self, format: &str) {
        let raw = self.folder.path().join("raw");
        let oracle = Oracle::ask(format, &self.image, &raw);
        self.run(|finished, target| {
            finished.assert_success(format);
            disk::assert_same(target, &raw, oracle.virtual_size, format);
        });
    }
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

#[test]
#[ignore = "alone: measures memory"]
fn backing_files_are_refused_and_named() {
    for name in [
        "/etc/passwd",
        "../../secret.raw",
        "json:{\"driver\":\"file\",\"filename\":\"/etc/passwd\"}",
        "nbd://127.0.0.1:1/export",
        "/dev/vda",
    ] {
        let chain = Attack::created("qcow2", &["-b", name, "-F", "raw"], "1M");
        chain.refused(name);
        chain.refused("other files are never opened");
    }
}

#[test]
#[ignore = "alone: measures memory"]
fn external_data_files_are_refused_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("data").display().to_string();
    let attack =
        Attack::created("qcow2", &["-o", &format!("data_file={name},data_file_raw=on")], "1M");
    attack.refused(&name);
}

#[test]
#[ignore = "alone: measures memory"]
fn vmdk_descriptors_that_name_other_files_are_refused_and_the_files_named() {
    for (kind, extent, name) in [
        ("monolithicFlat", "RW 2048 FLAT \"/etc/passwd\" 0", "/etc/passwd"),
        ("twoGbMaxExtentSparse", "RW 2048 SPARSE \"../other-s001.vmdk\"", "../other-s001.vmdk"),
        ("fullDevice", "RW 2048 FLAT \"/dev/vda\" 0", "/dev/vda"),
        ("vmfs", "RW 2048 VMFS \"disk-flat.vmdk\"", "disk-flat.vmdk"),
    ] {
        Attack::new(descriptor(kind, &[extent]).as_bytes()).refused(name);
    }
}

#[test]
#[ignore = "alone: measures memory"]
fn oversized_l1_tables_are_refused() {
    let mut image = qcow2(&Spec::new(Content::Sparse));
    image[36..40].copy_from_slice(&u32::MAX.to_be_bytes());
    Attack::new(&image).refused("L1 size too big");
}

#[test]
#[ignore = "alone: measures memory"]
fn disks_that_fit_nowhere_are_refused_before_anything_is_written() {
    Attack::created("qcow2", &["-o", "cluster_size=2M"], "1P").too_large();
    let mut vdi = Vdi::new(1 << 20, vec![Block::Free], Vec::new());
    vdi.patches.insert(0x170, (0x3fff_ffff_u64 << 20).to_le_bytes().into());
    vdi.patches.insert(0x180, 0x3fff_ffff_u32.to_le_bytes().into());
    Attack::new(&vdi.build()).run(|finished, target| {
        // The image lacks the map that such a disk needs, which may be noticed first.
        assert!([4, 5].contains(&finished.code()), "{}", finished.stderr);
        assert!(!target.exists(), "the target was left behind");
    });
    let mut vmdk = Vmdk::small(Tables::First, false, vec![Grain::Data(1)]).build();
    vmdk[12..20].copy_from_slice(&(HUGE / 512).to_le_bytes());
    Attack::new(&vmdk).run(|finished, target| {
        assert!([4, 5].contains(&finished.code()), "{}", finished.stderr);
        assert!(!target.exists(), "the target was left behind");
    });
}

#[test]
#[ignore = "alone: measures memory"]
fn tables_that_refer_to_themselves_or_each_other_do_not_loop() {
    let image =
        qcow2(&Spec { cluster_size: 512, virtual_size: 64 << 10, ..Spec::new(Content::Dense) });
    let l1 = be64(&image, 40);
    let table = |at: usize| u64::try_from(at).or_fail("an offset") | 1 << 63;
    // Two L1 entries for one table; an L1 entry for the L1 table; an L2 entry for its own table.
    let mut doubled = image.clone();
    doubled.copy_within(l1..l1 + 8, l1 + 8);
    Attack::new(&doubled).refused("share");
    let mut own = image.clone();
    own[l1..l1 + 8].copy_from_slice(&table(l1).to_be_bytes());
    let l2 = be64(&image, l1);
    let mut looped = image;
    looped[l2..l2 + 8].copy_from_slice(&table(l2).to_be_bytes());
    for image in [own, looped] {
        Attack::new(&image).run(|finished, target| {
            assert!([0, 4].contains(&finished.code()), "{}", finished.stderr);
            assert_eq!(target.exists(), finished.code() == 0);
        });
    }
}

#[test]
#[ignore = "alone: measures memory"]
fn overlapping_clusters_are_read_or_refused() {
    // A disk of 256 MiB whose 256 blocks are all the same block of 1 MiB.
    let blocks = vec![disk::content(1, BLOCK_BYTES as u64)];
    let vdi = Vdi::new(256 << 20, vec![Block::At(0); 256], blocks);
    Attack::new(&vdi.build()).harmless("vdi");
    let mut image = qcow2(&Spec { virtual_size: 1 << 20, ..Spec::new(Content::Dense) });
    let l2 = be64(&image, be64(&image, 40));
    image.copy_within(l2..l2 + 8, l2 + 8);
    let attack = Attack::new(&image);
    attack.run(|finished, _| assert!([0, 4].contains(&finished.code()), "{}", finished.stderr));
}

#[test]
#[ignore = "alone: measures memory"]
fn wrong_refcounts_never_change_the_disk() {
    for content in [Content::Snapshots, Content::RandomOrder] {
        let folder = tempfile::tempdir().unwrap();
        let spec = Spec { cluster_size: 4096, virtual_size: 2 << 20, ..Spec::new(content) };
        let image = spec.build(folder.path(), "image");
        let mut bytes = std::fs::read(&image.qcow2).unwrap();
        let block = be64(&bytes, be64(&bytes, 48));
        for lie in [[0, 0], [0, 1], [0xff, 0xff]] {
            bytes[block..block + 4096].chunks_mut(2).for_each(|count| count.copy_from_slice(&lie));
            Attack::new(&bytes).run(|finished, target| match finished.code() {
                0 => disk::assert_same(target, &image.raw, image.virtual_size, "the disk"),
                code => assert_eq!(code, 4, "{}", finished.stderr),
            });
        }
    }
}

#[test]
#[ignore = "alone: measures memory"]
fn clusters_and_grains_that_inflate_beyond_their_size_are_refused() {
    let bomb = tools::filter("gzip", ["-9nc"], &vec![0; 64 << 20]);
    // The deflate stream: without gzip's header and trailer.
    let deflate = &bomb[10..bomb.len() - 8];
    let mut image = qcow2(&Spec {
        compression: Compression::Zlib,
        virtual_size: 256 << 10,
        ..Spec::new(Content::Dense)
    });
    let l2 = be64(&image, be64(&image, 40));
    let place = image.len().next_multiple_of(512);
    image.resize(place, 0);
    image.extend_from_slice(deflate);
    image.resize(image.len().next_multiple_of(512), 0);
    // qcow2.rst, "Compressed Clusters Descriptor": bit 62, 127 more sectors, the offset.
    let entry = 1 << 62 | 127 << 54 | u64::try_from(place).unwrap();
    image[l2..l2 + 8].copy_from_slice(&entry.to_be_bytes());
    Attack::new(&image).harmless_or_refused("qcow2", "does not inflate");

    let vmdk = Vmdk::small(Tables::Footer, true, vec![Grain::Data(1), Grain::Data(2)]);
    let mut image = vmdk.build();
    // The first marker has the number of bytes of its grain's zlib stream. The stream inflates to
    // 64 KiB, and the grain has 4 KiB.
    let overhead = u64::from_le_bytes(image[64..72].try_into().unwrap());
    let marker = usize::try_from(overhead).unwrap() * 512;
    let mut bomb = zlib_bomb();
    let length = u32::try_from(bomb.len()).unwrap();
    image[marker + 8..marker + 12].copy_from_slice(&length.to_le_bytes());
    bomb.resize(500, 0);
    image[marker + 12..marker + 512].copy_from_slice(&bomb);
    Attack::new(&image).refused("does not inflate");
}

/// A zlib stream of 64 KiB of zeros (RFC 1950), with a wrong checksum that nothing reaches.
fn zlib_bomb() -> Vec<u8> {
    let gzip = tools::filter("gzip", ["-9nc"], &vec![0; 64 << 10]);
    let deflate = &gzip[10..gzip.len() - 8];
    [&[0x78, 0x9c], deflate, &[0; 4]].concat()
}

impl Attack {
    /// Asserts that the image is refused with this sentence, or becomes the disk that qemu-img
    /// makes. Both are right: qemu-img stops inflating when the cluster is full.
    fn harmless_or_refused(&self, format: &str, sentence: &str) {
        let raw = self.folder.path().join("raw");
        let reads = tools::qemu_converts(format, &self.image, &raw);
        self.run(|finished, target| match finished.code() {
            0 => {
                assert!(reads, "qemu-img refuses it");
                let length = raw.metadata().or_fail("qemu-img's disk").len();
                disk::assert_same(target, &raw, length, format);
            }
            _ => finished.assert_failure(4, sentence),
        });
    }
}

#[test]
#[ignore = "alone: measures memory"]
fn sparse_bombs_become_holes_or_are_refused_as_too_large() {
    // A VMDK of 1 GiB without data becomes a hole; a VHDX of 64 TiB is larger than the volume.
    let attack = Attack::created("vmdk", &["-o", "subformat=monolithicSparse"], "1G");
    attack.harmless("vmdk");
    let vhdx = Vhdx::new(64 << 40, 256 << 20).bytes();
    Attack::new(&vhdx).too_large();
}

#[test]
#[ignore = "alone: measures memory"]
fn offsets_near_the_largest_number_do_not_overflow() {
    let max = u64::MAX.to_le_bytes();
    // Fields of a VMDK header: capacity, grain size, descriptor, redundant directory, overhead.
    for at in [12, 20, 28, 48, 64] {
        let mut image = Vmdk::small(Tables::First, false, vec![Grain::Data(1)]).build();
        image[at..at + 8].copy_from_slice(&max);
        Attack::new(&image).run(|finished, target| {
            assert!([0, 4, 5].contains(&finished.code()), "{}", finished.stderr);
            assert_eq!(target.exists(), finished.code() == 0);
        });
    }
    // VHD: the offsets of the dynamic header and of its table, with valid checksums.
    let image = Dynamic::new(4 << 20, 2 << 20).bytes();
    let mut header = image.clone();
    header[16..24].copy_from_slice(&(u64::MAX - 1).to_be_bytes());
    vhd::seal(&mut header[..512], 64);
    Attack::new(&header).refused("invalid vpc (VHD) image");
    let mut table = image;
    table[512 + 16..512 + 24].copy_from_slice(&(u64::MAX - 7).to_be_bytes());
    vhd::seal(&mut table[512..1536], 36);
    Attack::new(&table).refused("cannot be at");
}
