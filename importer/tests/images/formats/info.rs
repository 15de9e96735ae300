//! `info` and `check` of every format: the same fields, the size of qemu-img, and no false errors.

use std::path::Path;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::Subformat;
use testkit::process::Program;

const FORMATS: [&str; 5] = ["qcow2", "vmdk", "vdi", "vpc", "vhdx"];

fn json(program: Program, case: &str) -> serde_json::Value {
    let finished = program.run();
    finished.assert_success(case);
    serde_json::from_str(&finished.stdout).or_fail(case)
}

fn importer(command: &str, arguments: &[&str], image: &Path) -> Program {
    Program::new(crate::BINARY).args([command, "--json"]).args(arguments.iter().copied()).arg(image)
}

/// Size of the disk as qemu-img reports it, in bytes.
fn qemu_size(format: &str, image: &Path) -> u64 {
    let program = Program::new("qemu-img").args(["info", "--output=json", "-f", format]).arg(image);
    json(program, format)["virtual-size"].as_u64().or_fail(format)
}

#[test]
#[ignore = "tools: qemu-img"]
fn every_format_has_the_same_fields_and_the_size_of_qemu_img() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let raw = folder.path().join("raw");
    std::fs::write(&raw, disk::sparse_content(1, (5 << 20) + 512, 3)).or_fail("write a disk");
    let mut fields: Option<Vec<String>> = None;
    for subformat in FORMATS.into_iter().flat_map(Subformat::of) {
        let case = subformat.to_string();
        let image = folder.path().join("image");
        subformat.write(&raw, &image);
        let info = json(importer("info", &[], &image), &case);
        let virtual_size = qemu_size(subformat.format, &image);
        assert_eq!(info["virtual_size"], virtual_size, "{case}: {info}");
        assert!(info["refused"].is_null(), "{case}: {info}");
        assert!(info["allocated_bytes"].is_u64(), "{case}: {info}");
        let keys: Vec<String> = info.as_object().or_fail(&case).keys().cloned().collect();
        assert_eq!(fields.get_or_insert_with(|| keys.clone()), &keys, "{case}");

        // A fixed VHD is a raw disk with a footer, and has no structure to check.
        if !case.contains("fixed") || subformat.format != "vpc" {
            let checked = json(importer("check", &["--data"], &image), &case);
            assert_eq!(checked["errors"], 0, "{case}: {checked}");
            assert_eq!(checked["virtual_size"], virtual_size, "{case}");
        }
    }
}
