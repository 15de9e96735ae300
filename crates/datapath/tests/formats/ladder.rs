//! Rungs C and D: images whose map comes last and that are too large to wait in memory.

use std::path::Path;

use datapath::options::WriteOptions;
use datapath::{disk, transfer_image};
use stream::Error;
use stream::facts::RouteTaken;
use stream::options::{PayloadKind, ReadOptions};
use testkit::tools;

use crate::common::{Memory, file, noise, qemu_img, transfer};

const MIB: usize = 1 << 20;

/// Writes a qcow2 image of 48 MiB, every fourth of them zeros and the others noise, followed by
/// empty space. A resize has moved its L1 table to the end of the file.
fn resized(image: &Path, convert: &[&str], growth: &str) {
    let raw = image.with_extension("raw");
    let mut bytes = Vec::new();
    for index in 0..48 {
        bytes.extend(if index % 4 == 3 { vec![0; MIB] } else { noise(MIB, index + 1) });
    }
    std::fs::write(&raw, bytes).unwrap();
    let arguments =
        [&["convert", "-f", "raw", "-O", "qcow2"], convert, &[text(&raw), text(image)]].concat();
    qemu_img(&arguments);
    qemu_img(&["resize", text(image), growth]);
}

/// Moves the L1 table behind the data, by growing the disk; shrinking leaves it there.
fn move_table(image: &Path, size: &str) {
    qemu_img(&["resize", text(image), "+2G"]);
    qemu_img(&["resize", "--shrink", text(image), size]);
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
#[ignore = "slow: waits 8 s"]
fn clusters_of_a_resized_image_wait_on_the_target() {
    for (convert, growth) in [
        (&[][..], "+600M"),
        (&["-c"], "+600M"),
        (&["-o", "cluster_size=4k"], "+600M"),
        (&["-c", "-o", "cluster_size=2M,compression_type=zstd"], "+600G"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (image, disk) = (dir.path().join("image"), dir.path().join("disk"));
        resized(&image, convert, growth);
        let source = Memory::new(std::fs::read(&image).unwrap());
        let report = transfer(&source, &file(&disk)).unwrap();
        assert_eq!(report.facts.route, RouteTaken::OnePass);
        qemu_img(&["compare", "-f", "raw", "-F", "qcow2", text(&disk), text(&image)]);
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_full_target_without_a_free_slot_works() {
    // The target may not grow beyond the disk, and the disk has no holes, so every slot is the
    // final place of some cluster.
    let dir = tempfile::tempdir().unwrap();
    let raw = noise(32 * MIB, 7);
    let (raw_path, image_path) = (dir.path().join("raw"), dir.path().join("image"));
    std::fs::write(&raw_path, &raw).unwrap();
    let convert = ["convert", "-f", "raw", "-O", "qcow2", "-o", "cluster_size=4k"];
    qemu_img(&[&convert[..], &[text(&raw_path), text(&image_path)]].concat());
    move_table(&image_path, "32M");
    let disk = dir.path().join("disk");
    let target = disk::DiskOptions { available: 32 * MIB as u64, ..file(&disk) };
    let image = std::fs::read(&image_path).unwrap();
    transfer(&Memory::new(image), &target).unwrap();
    assert!(std::fs::read(&disk).unwrap() == raw);
}

/// Returns an image with more data that only a snapshot uses than fits beside the active disk.
fn with_snapshot(dir: &Path) -> Vec<u8> {
    let image = dir.join("image");
    let path = image.to_str().unwrap();
    qemu_img(&["create", "-f", "qcow2", path, "48M"]);
    let write = |pattern: u8| {
        tools::run("qemu-io", ["-c", &format!("write -P {pattern} 0 48M"), path]);
    };
    write(1);
    qemu_img(&["snapshot", "-c", "before", path]);
    write(2);
    move_table(&image, "48M");
    std::fs::read(image).unwrap()
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn data_that_fits_nowhere_goes_to_scratch_or_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let image = with_snapshot(dir.path());
    let expected = vec![2; 48 * MIB];
    let disk = dir.path().join("disk");
    let target = disk::DiskOptions { available: 48 * MIB as u64, ..file(&disk) };

    let error = transfer(&Memory::new(image.clone()), &target).unwrap_err();
    assert!(matches!(error, Error::Format(_)), "{error}");
    assert!(error.to_string().contains("provide a scratch directory"), "{error}");
    assert!(!disk.exists());

    let scratch = dir.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let options = WriteOptions { scratch: Some(scratch.clone()), ..WriteOptions::default() };
    let (content, reading) = (PayloadKind::default(), ReadOptions::default());
    transfer_image(&Memory::new(image.clone()), content, &target, &reading, &options).unwrap();
    assert!(std::fs::read(&disk).unwrap() == expected);
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);

    // With a ranged source nothing has to wait.
    std::fs::remove_file(&disk).unwrap();
    let report = transfer(&Memory::ranged(image), &target).unwrap();
    assert_eq!(report.facts.route, RouteTaken::Ranged);
    assert!(std::fs::read(&disk).unwrap() == expected);
}
