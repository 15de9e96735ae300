//! Disks that are written in parts, by processes that are killed.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};

use proptest::prelude::*;
use stream::prefix_crc::PREFIX_STEP_BYTES;
use testkit::tools;

use super::*;

fn open(path: &Path, format: DiskFormat) -> LocalDisk {
    // A program that another test starts has the locked file from `fork` to `exec`.
    loop {
        match LocalDisk::open(path, format) {
            Err(busy) if busy.to_string().starts_with("another process") => {
                std::thread::yield_now()
            }
            opened => return opened.unwrap(),
        }
    }
}

const FORMATS: [DiskFormat; 5] = [
    DiskFormat::Raw,
    DiskFormat::RawZstd,
    DiskFormat::Qcow2(Qcow2Compression::None),
    DiskFormat::Qcow2(Qcow2Compression::Zlib),
    DiskFormat::Qcow2(Qcow2Compression::Zstd),
];

/// Returns the disk in the complete file `path`.
fn read_disk(path: &Path, format: DiskFormat) -> Vec<u8> {
    match format {
        DiskFormat::Raw => fs::read(path).unwrap(),
        DiskFormat::RawZstd => tools::filter("zstd", ["-dcq"], &fs::read(path).unwrap()),
        DiskFormat::Qcow2(_) => {
            tools::run("qemu-img", ["check".as_ref(), path.as_os_str()]);
            let raw = path.with_extension("converted");
            assert!(tools::qemu_converts("qcow2", path, &raw));
            fs::read(raw).unwrap()
        }
    }
}

fn append(disk: &mut LocalDisk, bytes: &[u8]) {
    disk.append(Bytes::copy_from_slice(bytes)).unwrap();
}

fn crc_of(bytes: &[u8]) -> PrefixCrc {
    let mut crc = RunningCrc::default();
    crc.add_part(LocalExtent::Data(Bytes::copy_from_slice(bytes)), |_| ());
    crc.checksum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    #[ignore = "tools: qemu-img, zstd"]
    fn the_file_contains_the_disk_whatever_the_parts_and_the_interruptions(
        parts in prop::collection::vec((any::<bool>(), 1_usize..700_000, 0..4), 1..12),
        format in prop::sample::select(&FORMATS[..]),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let partial = FileNames::new(&path).partial;
        let size = parts.iter().map(|(_, length, _)| *length as u64).sum();
        let mut disk = open(&path, format);
        disk.begin(size).unwrap();
        let mut expected = Vec::new();
        for (is_data, length, interruption) in parts {
            let start = expected.len();
            let mut bytes = vec![0; length];
            if is_data {
                bytes = testkit::disk::content(start as u64, length as u64);
                bytes[length / 3..length / 2].fill(0);
            }
            expected.extend_from_slice(&bytes);
            append(&mut disk, &bytes);
            if interruption > 1 {
                continue;
            }
            let is_settled = interruption == 0;
            if is_settled {
                disk.settle().unwrap();
            }
            drop(disk);
            if format == DiskFormat::RawZstd && partial.exists() {
                // Killed processes leave incomplete frames.
                let mut file = fs::OpenOptions::new().append(true).open(&partial).unwrap();
                file.write_all(&[0x28, 0xB5, 0x2F, 0xFD, 0, 56, 1, 2]).unwrap();
            }
            disk = open(&path, format);
            disk.read_left_behind(|| true).unwrap();
            disk.begin(size).unwrap();
            let position = usize::try_from(disk.position()).unwrap();
            if is_settled {
                // A qcow2 image contains only whole clusters before its end.
                let lost = expected.len() - position;
                let is_qcow2 = matches!(format, DiskFormat::Qcow2(_));
                prop_assert!(lost == 0 || is_qcow2 && lost < 64 << 10, "{lost}");
            }
            append(&mut disk, &expected[position..]);
            prop_assert_eq!(disk.crc.checksum(), crc_of(&expected));
        }
        disk.settle().unwrap();
        disk.finish().unwrap();
        let mut written = read_disk(&path, format);
        prop_assert!(written[expected.len()..].iter().all(|byte| *byte == 0));
        prop_assert!(written.len() - expected.len() < 512);
        written.truncate(expected.len());
        prop_assert!(written == expected);
        prop_assert!(!partial.exists());
    }
}

#[test]
#[ignore = "tools: qemu-img, zstd"]
fn everything_before_the_damage_is_kept() {
    let size = 24 << 20;
    let content = testkit::disk::sparse_content(3, size, 2);
    for format in &FORMATS[1..] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let partial = FileNames::new(&path).partial;
        let mut disk = open(&path, *format);
        disk.begin(size).unwrap();
        for part in content.chunks(250_000) {
            append(&mut disk, part);
        }
        disk.settle().unwrap();
        drop(disk);
        let file = fs::OpenOptions::new().write(true).open(&partial).unwrap();
        let length = file.metadata().unwrap().len();
        let (damaged_at, damage) = match format {
            // The end of the L2 table, which follows the header, the L1 table, the table of
            // references and their first block.
            DiskFormat::Qcow2(Qcow2Compression::None) => ((4 << 16) + 8 * 300, 800),
            // At least one whole frame or cluster, whose header shows the damage.
            _ => (length / 4 * 3, 300_000),
        };
        let read_again = || {
            let mut disk = open(&path, *format);
            disk.read_left_behind(|| true).unwrap();
            let position = usize::try_from(disk.position()).unwrap();
            assert_eq!(disk.crc.checksum(), crc_of(&content[..position]));
            disk.begin(size).unwrap();
            (disk, position)
        };
        let before = read_again().1;
        file.write_all_at(&vec![0xFF; damage], damaged_at).unwrap();
        let (mut disk, position) = read_again();
        assert!(position > before / 2 && position < before, "{format:?}: {position}");
        // Another attempt replaces the damaged part.
        append(&mut disk, &content[position..]);
        disk.settle().unwrap();
        disk.finish().unwrap();
        assert!(read_disk(&path, *format) == content, "{format:?}");
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn an_image_is_written_again_from_a_checksum() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let format = DiskFormat::Qcow2(Qcow2Compression::Zlib);
    let size = 2 * PREFIX_STEP_BYTES + 4096;
    let mut expected = vec![0; usize::try_from(size).unwrap()];
    expected[70 << 20..72 << 20].copy_from_slice(&testkit::disk::content(4, 2 << 20));
    let mut disk = open(&path, format);
    disk.begin(size).unwrap();
    let mut other = expected.clone();
    let prefix = usize::try_from(PREFIX_STEP_BYTES).unwrap();
    other[prefix..].fill(7);
    append(&mut disk, &other);
    disk.settle().unwrap();
    let kept = disk.prefix_at(PREFIX_STEP_BYTES);
    assert_eq!(disk.go_back_to(kept).unwrap(), PREFIX_STEP_BYTES);
    append(&mut disk, &expected[prefix..]);
    disk.settle().unwrap();
    disk.finish().unwrap();
    assert!(read_disk(&path, format) == expected);
}

#[test]
fn a_disk_that_differs_is_written_again_from_a_checksum() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let mut disk = open(&path, DiskFormat::Raw);
    disk.append(Bytes::from_static(b"equal")).unwrap();
    let kept = disk.prefix_at(5).unwrap();
    disk.append(Bytes::from_static(b"different")).unwrap();
    disk.settle().unwrap();
    assert_eq!(disk.prefix_at(7), None);
    assert_eq!(disk.go_back_to(Some(kept)).unwrap(), 5);
    disk.append(Bytes::from_static(b"\0\0\0")).unwrap();
    disk.settle().unwrap();
    disk.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"equal\0\0\0");
}

#[test]
#[ignore = "tools: qemu-img, zstd"]
fn a_file_of_another_program_is_neither_truncated_nor_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let partial = FileNames::new(&path).partial;
    fs::write(&partial, "mine").unwrap();
    let mut disk = open(&path, DiskFormat::RawZstd);
    let cause = |error: PluginError| error.to_string();
    assert!(cause(disk.read_left_behind(|| true).unwrap_err()).starts_with("cannot read"));
    drop(disk);
    let mut disk = open(&path, DiskFormat::Raw);
    disk.read_left_behind(|| true).unwrap();
    assert!(cause(disk.go_back_to(None).unwrap_err()).contains("is not the beginning"));
    assert_eq!(fs::read(&partial).unwrap(), b"mine");
    drop(disk);
    // The frames of another program may be large, or follow each other.
    let large = tools::filter("zstd", ["-c1"], &testkit::disk::content(5, 4 << 20));
    let small = tools::filter("zstd", ["-c1"], b"mine");
    for foreign in [large.clone(), [small, large].concat()] {
        fs::write(&partial, &foreign).unwrap();
        let mut disk = open(&path, DiskFormat::RawZstd);
        if disk.read_left_behind(|| true).is_ok() {
            assert!(cause(disk.go_back_to(None).unwrap_err()).contains("is not the beginning"));
        }
        drop(disk);
        assert!(fs::read(&partial).unwrap() == foreign);
    }
    let image = |compression| open(&path, DiskFormat::Qcow2(compression));
    let refused = |mut disk: LocalDisk| disk.read_left_behind(|| true).unwrap_err().to_string();
    for foreign in [&b"mine"[..], &[0; 4096], b"QFI\xfb\0\0\0\x03 and the rest of an image"] {
        fs::write(&partial, foreign).unwrap();
        let said = refused(image(Qcow2Compression::None));
        assert!(said.contains("not an incomplete download"), "{said}");
        assert_eq!(fs::read(&partial).unwrap(), foreign);
    }
    fs::remove_file(&partial).unwrap();
    let mut disk = image(Qcow2Compression::Zstd);
    disk.begin(1 << 20).unwrap();
    append(&mut disk, &[1; 1 << 20]);
    disk.settle().unwrap();
    drop(disk);
    let said = refused(image(Qcow2Compression::Zlib));
    assert!(said.contains("begun with --compression zstd: give the same"), "{said}");
    assert!(!tools::qemu_converts("qcow2", &partial, &folder.path().join("raw")));
    // The volume has another size, and nothing shows that the file belongs to it.
    let mut disk = image(Qcow2Compression::Zstd);
    disk.read_left_behind(|| true).unwrap();
    assert!(cause(disk.begin(2 << 20).unwrap_err()).contains("is not the beginning"));
    drop(disk);
    fs::write(&partial, "mine").unwrap();
    let mut disk = open(&path, DiskFormat::Raw);
    // Another program replaces the file, and creates the complete one.
    fs::remove_file(&partial).unwrap();
    fs::write(&partial, "other").unwrap();
    assert!(cause(disk.finish().unwrap_err()).starts_with("cannot create"));
    assert_eq!(fs::read(&partial).unwrap(), b"other");
    fs::write(&path, "complete").unwrap();
    let file = File::open(&partial).unwrap();
    unix::rename_new(&file, &partial, &path).unwrap_err();
    assert_eq!(fs::read(&path).unwrap(), b"complete");
}

/// A process may be killed between the header, which is written last, and the name.
#[test]
#[ignore = "tools: qemu-img"]
fn a_complete_image_without_its_name_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    for (compression, size) in
        Qcow2Compression::ALL.into_iter().flat_map(|kind| [(kind, 1 << 20), (kind, 1_000_960)])
    {
        let path = folder.path().join(format!("{compression}-{size}"));
        let content = testkit::disk::sparse_content(1, size, 2);
        let format = DiskFormat::Qcow2(compression);
        for is_first in [true, false] {
            let mut disk = open(&path, format);
            disk.read_left_behind(|| true).unwrap();
            disk.begin(size).unwrap();
            let position = usize::try_from(disk.position()).unwrap();
            assert!(is_first || content.len() - position < 1 << 16, "from {position}");
            append(&mut disk, &content[position..]);
            disk.finish().unwrap();
            assert!(read_disk(&path, format) == content, "{path:?}");
            if is_first {
                fs::rename(&path, path.with_added_extension("partial")).unwrap();
            }
        }
    }
}

#[test]
fn existing_files_links_and_locked_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let check_refused = |name: &str, reason: &str| {
        let refused = LocalDisk::open(&path(name), DiskFormat::Raw).err().unwrap().to_string();
        assert!(refused.contains(reason), "{refused}");
    };
    fs::write(path("mine"), "mine").unwrap();
    check_refused("mine", "already exists");
    symlink("mine", path("link")).unwrap();
    check_refused("link", "already exists");
    symlink(path("mine"), path("a.partial")).unwrap();
    check_refused("a", "cannot create");
    fs::hard_link(path("mine"), path("b.partial")).unwrap();
    check_refused("b", "is not a regular file of its own");
    fs::create_dir(path("c.partial")).unwrap();
    check_refused("c", "cannot create");
    let _held = open(&path("d"), DiskFormat::Raw);
    check_refused("d", "another process is downloading");
    check_refused("none/e", "cannot create");
    assert_eq!(fs::read(path("mine")).unwrap(), b"mine");
}
