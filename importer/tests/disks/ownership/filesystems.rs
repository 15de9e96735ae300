//! Rare file systems and devices: the disk is the same, or it is refused and nothing is left.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use testkit::fail::OrFail;
use testkit::loopdev::{LoopDevice, Mount};
use testkit::tmpfs::Tmpfs;
use testkit::{disk, tools};

use crate::ownership::importer;
use crate::ownership::place::Place;
use crate::ownership::same::Partition;

const MIB: u64 = 1 << 20;

/// Not a multiple of 4096.
const DISK_BYTES: u64 = 3 * MIB + 512;

/// Returns a folder for file systems, and a disk with a hole.
fn scene() -> (Place, PathBuf) {
    let place = Place::with_file();
    let (mut content, raw) = (disk::content(1, DISK_BYTES), place.root().join("raw"));
    content[1 << 20..2 << 20].fill(0);
    std::fs::write(&raw, content).or_fail("a disk");
    (place, raw)
}

#[test]
#[ignore = "root: loop devices, mounts"]
fn a_disk_is_the_same_on_any_ext_file_system() {
    let (place, raw) = scene();
    for (mkfs, mount) in [
        ("mkfs.ext4 -q -t ext2", "rw"),
        // Files without extents cannot be preallocated by the file system.
        ("mkfs.ext4 -q -O ^extent,^64bit", "rw"),
        ("mkfs.ext4 -q -b 1024", "data=journal"),
        ("mkfs.ext4 -q -O bigalloc -C 65536", "sync"),
    ] {
        let device = LoopDevice::empty(place.root(), 32 * MIB, 512);
        let _mounted = Mount::of_device(device.path(), mkfs, mount, &place.data());
        for (option, is_sparse) in [("-q", true), ("--preallocate", false)] {
            let import = importer(["import", "--force", option]).arg(&raw).arg(place.target());
            import.run().assert_success(mkfs);
            disk::assert_same(&place.target(), &raw, DISK_BYTES, mkfs);
            let metadata = place.target().metadata().or_fail(mkfs);
            assert_eq!(metadata.len(), DISK_BYTES, "{mkfs}");
            assert_eq!(metadata.blocks() * 512 < DISK_BYTES, is_sparse, "{mkfs}");
        }
    }
}

#[test]
#[ignore = "root: mounts"]
fn a_disk_in_an_overlay_leaves_that_of_the_lower_layer() {
    let (place, raw) = scene();
    // An overlay cannot be the upper layer of another one, which the test's own root may be.
    let layers = place.root().join("dev");
    let _memory = Tmpfs::on(&layers, 16 * MIB);
    for name in ["lower", "upper", "work"] {
        std::fs::create_dir(layers.join(name)).or_fail(name);
    }
    let old = layers.join("lower/disk.img");
    std::fs::write(&old, "old").or_fail("a disk");
    let at = layers.display();
    let options = format!("lowerdir={at}/lower,upperdir={at}/upper,workdir={at}/work");
    let _mounted = Mount::new(&["-t", "overlay", "-o", &options, "none"], &place.data());
    let import = importer(["import", "--force", "-q"]).arg(&raw).arg(place.target());
    import.run().assert_success("overlay");
    disk::assert_same(&place.target(), &raw, DISK_BYTES, "overlay");
    assert_eq!(std::fs::read(&old).or_fail("the old disk"), b"old");
}

#[test]
#[ignore = "root: loop devices, mounts"]
fn a_file_system_that_cannot_store_the_disk_is_left_unchanged() {
    let (place, raw) = scene();
    let huge = place.root().join("huge.qcow2");
    tools::run("qemu-img", ["create", "-q", "-f", "qcow2", &huge.to_string_lossy(), "20G"]);
    let large = "file too large; its filesystem does not support files of that size";
    for (mkfs, mount, source, code, sentence) in [
        ("mkfs.ext4 -q", "ro", &raw, 7, "read-only file system; mount it writable"),
        ("mkfs.ext4 -q -b 1024 -O ^extent,^64bit", "rw", &huge, 5, large),
        ("mkfs.ext4 -q -N 16", "rw", &raw, 5, "no space left on device; free some space"),
    ] {
        let device = LoopDevice::empty(place.root(), 32 * MIB, 512);
        let _mounted = Mount::of_device(device.path(), mkfs, mount, &place.data());
        let mut names = (0..).map(|number| place.data().join(number.to_string()));
        while mkfs.contains("-N") && names.next().is_some_and(|name| File::create(name).is_ok()) {}
        let count = || std::fs::read_dir(place.data()).or_fail(mkfs).count();
        let before = count();
        let import = importer(["import", "-q"]).arg(source).arg(place.target());
        import.run().assert_failure(code, sentence);
        assert_eq!(count(), before, "{mkfs}");
    }
}

#[test]
#[ignore = "root: loop devices, mounts"]
fn a_device_that_is_used_or_read_only_is_left_unchanged() {
    let (place, raw) = scene();
    let device = LoopDevice::empty(place.root(), 8 * MIB, 4096);
    let import = |target: &Path| importer(["import", "-q"]).arg(&raw).arg(target).run();
    import(device.path()).assert_success("sectors of 4096 bytes");
    disk::assert_same(device.path(), &raw, DISK_BYTES, "sectors of 4096 bytes");
    let content = || std::fs::read(device.path()).or_fail("the device");
    for is_partition in [false, true] {
        let partition = is_partition.then(|| Partition::new(device.path(), 1, 1, 4));
        let path = partition.as_ref().map_or(device.path().to_owned(), Partition::path);
        // If it could be written, the kernel itself would: the journal, every five seconds.
        let _mounted = Mount::of_device(&path, "mkfs.ext4 -q", "ro", &place.data());
        let (before, busy) = (content(), "device or resource busy; unmount it or end the program");
        import(device.path()).assert_failure(7, busy);
        assert!(content() == before, "a mounted device was changed");
    }
    let (before, above) = (content(), LoopDevice::over(&device, &["--read-only"]));
    let read_only = "operation not permitted; it is read-only: choose another target";
    import(above.path()).assert_failure(7, read_only);
    assert!(content() == before, "a read-only device was changed");
}
