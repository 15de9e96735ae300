//! `cdi-importer convert IMAGE DISK.qcow2`, with qemu-img as the judge.

mod wrong;

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use serde_json::Value;
use testkit::cases::{Named, check_all};
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Spec};
use testkit::process::{Finished, Program};
use testkit::random::Random;
use testkit::{disk, tmpfs, tools};

use crate::same_disk;

const MIB: u64 = 1 << 20;
const CLUSTER_BYTES: u64 = 64 << 10;

/// Values of `--compression`, and qemu-img's options for the same.
const COMPRESSIONS: [(&str, &[&str]); 3] =
    [("none", &[]), ("zlib", &["-c"]), ("zstd", &["-c", "-o", "compression_type=zstd"])];

fn convert(source: &Path, target: &Path, options: &[&str]) -> Program {
    let program = Program::new(crate::BINARY).arg("convert").args(options.iter().copied());
    program.arg(source).arg(target)
}

fn convert_well(source: &Path, target: &Path, options: &[&str]) -> Finished {
    let finished = convert(source, target, options).run();
    finished.assert_success(&format!("{} {options:?}", source.display()));
    finished
}

fn qemu_img(words: &[&str], files: &[&Path]) -> String {
    let words = words.iter().map(OsStr::new);
    tools::run("qemu-img", words.chain(files.iter().map(|file| file.as_os_str())))
}

fn assert_clean(image: &Path, case: &str) {
    let report = qemu_img(&["check", "-f", "qcow2"], &[image]);
    assert!(report.contains("No errors were found on the image."), "{case}: {report}");
}

/// Fails the test unless qemu-img finds a clean image of this disk, and we read the same from a
/// pipe.
fn assert_image(image: &Path, raw: &Path, case: &str) {
    assert_clean(image, case);
    qemu_img(&["compare", "-f", "raw", "-F", "qcow2"], &[raw, image]);
    let own = Program::new(crate::BINARY).arg("check").args(["--data", "--json"]).arg(image).run();
    own.assert_success(case);
    let found: Value = serde_json::from_str(&own.stdout).or_fail(case);
    assert_eq!((&found["errors"], &found["leaked_clusters"]), (&0.into(), &0.into()), "{case}");
    let copy = image.with_extension("copy");
    let read =
        Program::new(crate::BINARY).args(["convert", "-"]).stdin_file(image).arg(&copy).run();
    read.assert_success(case);
    disk::assert_same(&copy, raw, length(raw), case);
    fs::remove_file(copy).or_fail(case);
}

fn length(file: &Path) -> u64 {
    file.metadata().or_fail(file.display()).len()
}

fn info(image: &Path) -> Value {
    let printed = qemu_img(&["info", "--output=json"], &[image]);
    serde_json::from_str(&printed).or_fail("a report")
}

/// Disks of given and of random sizes, with little, much and no data.
#[test]
#[ignore = "slow: 10 s of CPU time"]
fn images_are_as_small_as_those_of_qemu() {
    let mut random = Random::new(1);
    let mut sizes = vec![MIB * 24, 6 * MIB + 3 * 512, CLUSTER_BYTES, 512, 9 * MIB - 512];
    sizes.extend((0..4).map(|_| 512 * (1 + random.below(40_000))));
    let contents: [fn(u64) -> Vec<u8>; 3] = [
        |size| disk::sparse_content(1, size, 8),
        |size| disk::content(2, size),
        |size| vec![0; usize::try_from(size).or_fail("a small disk")],
    ];
    let cases = sizes.into_iter().flat_map(|size| {
        let named = move |(number, content)| Named(format!("{size} {number}"), (size, content));
        contents.into_iter().enumerate().map(named)
    });
    check_all(cases.collect::<Vec<_>>(), |Named(_, (size, content))| {
        let folder = tmpfs::fast_folder();
        let path = |name: &str| folder.path().join(name);
        disk::write_sparse(&path("raw"), &content(*size));
        for (threads, (compression, options)) in ["1", "4", "2"].into_iter().zip(COMPRESSIONS) {
            let (ours, theirs) = (path("ours.qcow2"), path("theirs.qcow2"));
            let own = ["--compression", compression, "--threads", threads, "--force"];
            convert_well(&path("raw"), &ours, &own);
            assert_image(&ours, &path("raw"), compression);
            let words = [&["convert", "-f", "raw", "-O", "qcow2"][..], options].concat();
            qemu_img(&words, &[&path("raw"), &theirs]);
            // The L1 table and the refcount table, and a cluster that may be packed differently.
            let most = length(&theirs) * 101 / 100 + 3 * CLUSTER_BYTES;
            assert!(length(&ours) <= most, "{compression}: {} bytes", length(&ours));
            let (ours, theirs) = (info(&ours), info(&theirs));
            for field in ["virtual-size", "cluster-size", "format", "dirty-flag", "format-specific"]
            {
                assert_eq!(ours[field], theirs[field], "{compression}: {field}");
            }
        }
    });
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_part_of_a_sector_becomes_a_whole_one_and_nothing_an_empty_image() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    for (compression, _) in COMPRESSIONS {
        let target = path(compression);
        let options = ["--output-format", "qcow2", "--compression", compression, "--force"];
        for size in [1000, 2 * CLUSTER_BYTES - 1] {
            fs::write(path("raw"), disk::content(1, size)).or_fail("a disk");
            convert_well(&path("raw"), &target, &options);
            assert_image(&target, &path("raw"), compression);
            assert_eq!(info(&target)["virtual-size"], size.next_multiple_of(512));
        }
        qemu_img(&["create", "-q", "-f", "qcow2"], &[&path("empty"), Path::new("0")]);
        convert_well(&path("empty"), &target, &options);
        assert_clean(&target, compression);
        assert_eq!(info(&target)["virtual-size"], 0);
    }
}

#[test]
#[ignore = "slow: 3 s of CPU time"]
fn every_format_becomes_qcow2_or_needs_scratch_space_as_in_pack() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    let spec = Spec { compression: Compression::Zlib, ..Spec::new(Content::RandomOrder) };
    let image = spec.build(folder.path(), "image");
    let files = same_disk::files(folder.path(), &image.raw, &image.qcow2);
    let mut images = Vec::new();
    for (number, source) in files.iter().enumerate() {
        let target = path(&format!("{number}.qcow2"));
        convert_well(source, &target, &[]);
        assert_image(&target, &image.raw, &source.display().to_string());
        images.push(fs::read(&target).or_fail("an image"));
    }
    // The format does not matter. If the size is known only at the end, as that of raw.gz, the L1
    // table is at the end too.
    images.dedup();
    assert_eq!(images.len(), 2);

    let compressed = path("image.qcow2.gz");
    same_disk::filter("gzip", &image.qcow2, &compressed);
    let target = path("scratched.qcow2");
    let refusal = "pass --scratch DIR to write the disk there first";
    convert(&compressed, &target, &[]).run().assert_failure(3, refusal);
    assert!(!target.exists());
    fs::create_dir(path("scratch")).or_fail("a folder");
    let scratch = path("scratch").display().to_string();
    convert_well(&compressed, &target, &["--scratch", &scratch]);
    assert_image(&target, &image.raw, "with scratch space");
    assert_eq!(fs::read_dir(path("scratch")).or_fail("the folder").count(), 0);
}

#[test]
#[ignore = "slow: 4 s of CPU time"]
fn a_terabyte_with_little_data_takes_little_space() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let source = folder.path().join("source");
    crate::write_large(&source, 1 << 40);
    for (compression, _) in COMPRESSIONS {
        let target = folder.path().join(format!("{compression}.qcow2"));
        let options = ["--compression", compression];
        convert_well(&source, &target, &options);
        assert!(length(&target) < 20 * CLUSTER_BYTES, "{compression}: {}", length(&target));
        assert_clean(&target, compression);
        qemu_img(&["compare", "-f", "raw", "-F", "qcow2"], &[&source, &target]);
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn the_name_decides_unless_an_option_does() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("raw"), disk::content(1, MIB)).or_fail("a disk");
    for (name, options, is_qcow2) in [
        ("a.qcow2", &[][..], true),
        ("b.QCOW2", &[], true),
        ("c.img", &["--output-format", "qcow2"], true),
        ("d.qcow2", &["--output-format", "raw"], false),
        ("qcow2", &[], false),
    ] {
        let finished = convert_well(&path("raw"), &path(name), options);
        assert!(finished.stdout.starts_with("converted raw: 1.00 MiB virtual"), "{name}");
        let format = if is_qcow2 { "qcow2" } else { "raw" };
        assert_eq!(info(&path(name))["format"], format, "{name}");
    }
    let options = ["--progress=json", "--compression=zstd", "--force"];
    let finished = convert_well(&path("raw"), &path("a.qcow2"), &options);
    let events = crate::events(&finished);
    let done = events.last().or_fail("events");
    assert_eq!((&done["event"], &done["format"]), (&"done".into(), &"raw".into()));
    assert_eq!((&done["virtual_size"], &done["source_bytes"]), (&MIB.into(), &MIB.into()));
    assert_eq!(done["disk_size"], length(&path("a.qcow2")));
    assert_eq!(done["stage_seconds"].as_object().or_fail("times").len(), 4);
}
