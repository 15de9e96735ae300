//! Typical mistakes of people who start the server, or upload with curl. Each must give an exit
//! code or a status, and a message that says where, why and what to do.

mod serving;
mod uploads;

use std::path::Path;
use std::sync::OnceLock;

use tempfile::TempDir;
use testkit::certs::{Authority, KeyKind};
use testkit::fail::OrFail;
use testkit::mistake::MistakeScene;
use testkit::oci::tar;
use testkit::process::{Program, lasting};
use testkit::{disk, tools};

const MIB: u64 = 1 << 20;

const SNAPSHOTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/requests/mistakes");

const PAGE: &[u8] =
    b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Who?</body></html>\n";

/// Returns a server with certificates that it has created, and files.
fn scene() -> &'static MistakeScene {
    static SCENE: OnceLock<(TempDir, MistakeScene)> = OnceLock::new();
    &SCENE.get_or_init(start).1
}

fn start() -> (TempDir, MistakeScene) {
    let folder = tempfile::tempdir().or_fail("a folder");
    write_files(folder.path());
    let (target, certs) = (folder.path().join("target"), folder.path().join("certs"));
    let program = Program::new(crate::BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--insecure", "--size", "8Mi", "--dir"])
        .arg(&target)
        .arg("--self-signed")
        .arg(&certs);
    // It runs as long as the scene, which is never dropped.
    let running = lasting::start(program);
    let hint = running.wait_for_line("Upload with: ");
    let url = hint.split("https://").nth(1).or_fail(&hint);
    let address = url.split('/').next().or_fail(&hint).to_owned();
    let scene = MistakeScene::new(crate::BINARY, SNAPSHOTS)
        .word("files", folder.path().display())
        .word("space", " ")
        .word("url", format!("https://{address}/v1beta1"))
        .word("base", format!("https://{address}"))
        .word("address", address);
    std::mem::forget(running);
    (folder, scene)
}

/// Checks rows of arguments for curl.
#[track_caller]
fn check_uploads(table: &[&str]) {
    // These rows are not about the server's certificate.
    scene().check_requests("uploads", &["--insecure"], table);
}

/// Checks rows of arguments for the server.
#[track_caller]
fn check_serving(table: &[&str]) {
    scene().check("serving", table);
}

fn write_files(folder: &Path) {
    let raw = disk::content(1, 3 * MIB);
    let filter = |program: &str| tools::filter(program, ["-c"], &raw);
    let half = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
    let damaged = |mut bytes: Vec<u8>| {
        let middle = bytes.len() / 2;
        bytes[middle..middle + 64].fill(0);
        bytes
    };
    let program = std::fs::read(crate::BINARY).or_fail("a program");
    let foreign = |magic: &[u8]| [magic.to_vec(), disk::content(2, 4096)].concat();
    let files: &[(&str, Vec<u8>)] = &[
        ("raw", raw.clone()),
        ("empty", Vec::new()),
        ("short", disk::content(3, 100)),
        ("page.html", PAGE.to_vec()),
        ("error.json", b"[\"Not Found\"]".to_vec()),
        (
            "pointer",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n".to_vec(),
        ),
        ("program", program[..1 << 16].to_vec()),
        ("paper.pdf", b"%PDF-1.7\n%\xE2\xE3\xCF\xD3\n".repeat(100)),
        ("disk.zip", foreign(&disk::ZIP_HEADER)),
        ("disk.7z", foreign(b"7z\xBC\xAF\x27\x1C\0\x04")),
        ("disk.rar", foreign(b"Rar!\x1A\x07\x01\0")),
        ("half.gz", half(&filter("gzip"))),
        ("half.xz", half(&filter("xz"))),
        ("damaged.gz", damaged(filter("gzip"))),
        ("damaged.xz", damaged(filter("xz"))),
        ("damaged.qcow2", [b"QFI\xfb\0\0\0\x03".to_vec(), vec![0xEE; 4096]].concat()),
        ("half.tar", half(&tar(&[("a", &raw)]))),
        ("up.tar", tools::filter("tar", ["-c", "-P", "-C", "/", "/../etc/hostname"], b"")),
    ];
    for (name, bytes) in files {
        std::fs::write(folder.join(name), bytes).or_fail(name);
    }
    for name in ["directory", "target", "full"] {
        std::fs::create_dir(folder.join(name)).or_fail(name);
    }
    std::fs::write(folder.join("full/disk.img"), "a disk").or_fail("a disk");
    let stranger = Authority::new().and_then(|authority| authority.server(KeyKind::Ecdsa));
    std::fs::write(folder.join("other.key"), stranger.or_fail("a key").key_pem()).or_fail("a key");
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let qemu_img = |arguments: &[&str]| drop(tools::run("qemu-img", arguments.iter().copied()));
    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", &path("raw"), &path("disk.qcow2")]);
    let whole = std::fs::read(path("disk.qcow2")).or_fail("an image");
    std::fs::write(path("half.qcow2"), half(&whole)).or_fail("an image");
    let create = ["create", "-q", "-f", "qcow2"];
    qemu_img(
        &[&create[..], &["-u", "-F", "raw", "-b", "/etc/base.img", &path("child.qcow2"), "1M"]]
            .concat(),
    );
    qemu_img(&[&create[..], &[&path("huge.qcow2"), "1P"]].concat());
    let secret =
        ["-o", "encrypt.format=luks,encrypt.key-secret=s", "--object", "secret,id=s,data=hunter2"];
    qemu_img(&[&create[..], &secret, &[&path("encrypted.qcow2"), "1M"]].concat());
    qemu_img(&[
        "create",
        "-q",
        "-f",
        "vmdk",
        "-o",
        "subformat=monolithicFlat",
        &path("flat.vmdk"),
        "1M",
    ]);
}
