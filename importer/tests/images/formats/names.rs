//! Names inside images are escaped in all output, so that they can neither control a terminal nor
//! forge, hide or reorder the text beside them.

use std::ffi::OsStr;
use std::path::Path;

use testkit::fail::OrFail;
use testkit::images::vhdx::Vhdx;
use testkit::images::vmdk::descriptor;
use testkit::process::Program;
use testkit::tools;

/// Bidirectional controls, line separators, invisible characters, a tag, an escape sequence.
const DECEIVERS: &str = "\u{202e}\u{2066}\u{200f}\u{61c}\u{2028}\u{2029}\u{85}\u{200b}\u{200d}\u{ad}\u{feff}\u{e0041}\u{1b}[2J";

fn write_qcow2(image: &Path, backing: &str) {
    let words = ["create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", backing].map(OsStr::new);
    tools::run("qemu-img", words.into_iter().chain([image.as_os_str(), "1M".as_ref()]));
}

#[test]
#[ignore = "tools: qemu-img"]
fn names_in_images_are_escaped_in_all_output() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let [qcow2, vmdk, vhdx, target] =
        ["qcow2", "vmdk", "vhdx", "target"].map(|name| folder.path().join(name));
    let name = format!("disk-für-日本{DECEIVERS}gpj.raw");
    write_qcow2(&qcow2, &name);
    let extent = format!("RW 2048 FLAT \"{name}\" 0");
    std::fs::write(&vmdk, descriptor("monolithicFlat", &[&extent])).or_fail("a VMDK");
    let child = Vhdx { parent: Some(name), ..Vhdx::new(4 << 20, 1 << 20) };
    std::fs::write(&vhdx, child.bytes()).or_fail("a VHDX");
    for image in [&qcow2, &vmdk, &vhdx] {
        for (words, to) in [
            (&["info"][..], None),
            (&["info", "--json"], None),
            (&["check"], None),
            (&["check", "--json"], None),
            (&["import"], Some(&target)),
            (&["import", "--progress", "json"], Some(&target)),
        ] {
            let program = Program::new(crate::BINARY).args(words);
            let finished = program.arg(image).args(to).run();
            assert!(!finished.crashed(), "{}", finished.stderr);
            let output = finished.stdout + &finished.stderr;
            let place = format!("{words:?} of {}: {output:?}", image.display());
            assert!(output.contains("disk-für-日本\\"), "{place}");
            let deceives = |c: char| c == '\u{1b}' || (!c.is_ascii() && DECEIVERS.contains(c));
            assert!(!output.contains(deceives), "{place}");
        }
    }
    assert!(!target.exists());
}
