//! Our `qemu-img info` compared with QEMU's.

use std::path::Path;

use serde_json::Value;
use testkit::fail::OrFail;
use testkit::process::{Finished, Program};

use super::samples;

fn program() -> Program {
    Program::new(crate::BINARY).named("qemu-img")
}

fn info(arguments: &[&str], image: &Path) -> Finished {
    let program = program().arg("info").arg(image);
    program.args(arguments.iter().copied()).run()
}

#[test]
#[ignore = "tools: qemu-img, qemu-io, xz"]
fn descriptions_are_those_of_qemu() {
    samples::each(|image, case| {
        compare_json(image, case);
        compare_text(image, case);
        compare_formats(image, case);
    });
}

/// Our keys are QEMU's, with the same values.
fn compare_json(image: &Path, case: &str) {
    let ours = info(&["--output=json"], image);
    ours.assert_success(case);
    let ours: Value = serde_json::from_str(&ours.stdout).or_fail(case);
    let qemu = samples::qemu(image, case);
    for (key, value) in ours.as_object().or_fail(case) {
        assert_eq!(value, &qemu[key], "{case}: {key}");
    }
    for key in [
        "virtual-size",
        "filename",
        "cluster-size",
        "format",
        "actual-size",
        "backing-filename",
        "dirty-flag",
    ] {
        assert_eq!(ours.get(key).is_some(), qemu.get(key).is_some(), "{case}: {key}");
    }
}

/// Each line is one of QEMU's.
fn compare_text(image: &Path, case: &str) {
    let ours = info(&[], image);
    ours.assert_success(case);
    let qemu = samples::qemu_info(&[], image).stdout;
    for line in ours.stdout.lines() {
        // QEMU also prints where it would look for a backing file.
        let with_path = format!("{line} (actual path");
        let is_said = qemu.lines().any(|said| said == line || said.starts_with(&with_path));
        assert!(is_said, "{case}: {line:?} is not in\n{qemu}");
    }
    assert!(ours.stdout.lines().count() >= 4, "{case}: {}", ours.stdout);
}

/// A requested format is accepted or refused as by QEMU.
fn compare_formats(image: &Path, case: &str) {
    for format in ["raw", "qcow2", "vmdk", "vdi", "vpc", "vhdx"] {
        let ours = info(&["--output", "json", "-U", "-f", format], image);
        let qemu = samples::qemu_info(&["--output=json", "-f", format], image);
        let said = format!("{case} as {format}: {}{}", ours.stderr, qemu.stderr);
        assert_eq!(ours.code(), qemu.code(), "{said}");
        if ours.code() == 0 {
            let [ours, qemu] = [&ours, &qemu]
                .map(|said| serde_json::from_str::<Value>(&said.stdout).or_fail(case));
            for key in ["format", "virtual-size"] {
                assert_eq!(ours[key], qemu[key], "{said}: {key}");
            }
        }
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn unsupported_uses_are_refused_with_an_explanation() {
    samples::each_broken(|image, case| {
        let refused = info(&[], image);
        refused.assert_failure(1, "qemu-img: Could not open '");
        assert!(refused.stdout.is_empty(), "{case}");
    });
    info(&[], Path::new("/nope")).assert_failure(1, "qemu-img: Could not open '/nope': ");
    for words in [
        &["convert", "-O", "raw", "a", "b"][..],
        &["create", "a", "1M"],
        &["info"],
        &["info", "--backing-chain", "a"],
        &["info", "--output=xml", "a"],
        &["info", "-f", "luks", "a"],
        &[],
    ] {
        let refused = program().args(words.iter().copied()).run();
        refused.assert_failure(1, "this qemu-img is from cdi-workers");
        assert!(refused.stdout.is_empty(), "{words:?}");
    }
}

#[test]
#[ignore = "tools: qemu-img, strace"]
fn no_other_file_is_opened() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = folder.path().join("image");
    let words = ["create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", "/etc/hostname"];
    let image_path = image.display().to_string();
    testkit::tools::run("qemu-img", words.iter().copied().chain([image_path.as_str(), "1M"]));
    let log = folder.path().join("trace");
    let options = ["-f", "-qq", "-e", "trace=%file", "-o", &log.to_string_lossy()];
    let finished = program().args(["info", &image_path]).under("strace", options).start().wait();
    finished.assert_success("a delta");
    assert!(finished.stdout.contains("backing file: /etc/hostname\n"), "{}", finished.stdout);
    let trace = std::fs::read_to_string(&log).or_fail("the trace");
    assert!(
        trace.contains(&format!("\"{image_path}\", O_RDONLY"))
            && !trace.contains("\"/etc/hostname\""),
        "{trace}"
    );
}

#[test]
fn help_and_version_are_printed() {
    let version = program().arg("--version").run();
    version.assert_success("version");
    assert!(version.stdout.starts_with("qemu-img 0."), "{}", version.stdout);
    let help = program().arg("--help").run();
    help.assert_success("help");
    assert!(help.stdout.contains("this qemu-img is from cdi-workers"), "{}", help.stdout);
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_header_longer_than_its_file_is_an_error() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = folder.path().join("image");
    let image_path = image.to_string_lossy();
    testkit::tools::run(
        "qemu-img",
        ["create", "-q", "-f", "qcow2", "-o", "cluster_size=128k", &image_path, "1M"],
    );
    let mut bytes = std::fs::read(&image).or_fail("the image");
    let header_length =
        u32::from_be_bytes(bytes[100..104].try_into().or_fail("four bytes")) as usize;
    // An unknown extension of 100,000 bytes, which is skipped.
    let extension = [0x1234_5678_u32.to_be_bytes(), 100_000_u32.to_be_bytes()].concat();
    bytes[header_length..header_length + extension.len()].copy_from_slice(&extension);
    // A file shorter than the part that is read first, and a longer one.
    for length in [60_000, 70_000] {
        std::fs::write(&image, &bytes[..length]).or_fail("the image");
        info(&[], &image).assert_failure(1, "qemu-img: Could not open '");
    }
}
