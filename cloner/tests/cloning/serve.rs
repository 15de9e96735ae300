//! `cdi-cloner serve`: the pod of `kubectl cdi download`.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use tempfile::TempDir;
use testkit::fail::OrFail;
use testkit::process::{Program, Running};
use testkit::{disk, ports, tools, wait};

use crate::BINARY;

struct Served {
    folder: TempDir,
    address: SocketAddr,
    running: Running,
}

impl Served {
    fn start(content: &[u8], idle: &str) -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        let path = folder.path().join("disk.img");
        fs::write(&path, content).or_fail("a disk");
        let [address] = ports::free();
        let port = address.port().to_string();
        let program = Program::new(BINARY).arg("serve").arg(&path);
        let running = program.args(["--port", &port, "--idle", idle]).start();
        let complaint = || running.stderr_so_far();
        wait::until(complaint, || TcpStream::connect(address).is_ok());
        Self { folder, address, running }
    }

    fn disk(&self) -> std::path::PathBuf {
        self.folder.path().join("disk.img")
    }

    /// Returns the status and the body of a response, as curl reports them.
    fn get(&self, path: &str, options: &[&str]) -> (String, Vec<u8>) {
        let body = self.folder.path().join("body");
        fs::remove_file(&body).ok();
        let url = format!("http://{}{path}", self.address);
        let finished = Program::new(tools::find("curl"))
            .args(["--silent", "--write-out", "%{http_code}", "--output"])
            .arg(&body)
            .args(options.iter().copied())
            .arg(url)
            .start()
            .wait();
        (finished.stdout, read(&body))
    }

    fn text(&self, path: &str) -> (String, String) {
        let (status, body) = self.get(path, &[]);
        (status, String::from_utf8_lossy(&body).into_owned())
    }
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_default()
}

#[test]
#[ignore = "slow: waits 12 s"]
fn the_disk_is_served_from_any_offset_and_its_checksums_prove_it() {
    const MIB: usize = 1 << 20;
    let content = disk::sparse_content(3, 130 << 20, 4);
    let served = Served::start(&content, "30s");
    for offset in [0, 1, 64 * MIB, 64 * MIB + 5000] {
        let (status, body) = served.get(&format!("/disk/{offset}"), &[]);
        assert_eq!(status, "200");
        assert!(body.len() < content.len() / 2, "{offset}: {} bytes", body.len());
        assert!(tools::filter("zstd", ["-dcq"], &body) == content[offset..], "{offset}");
    }
    let ends = |path: &str| {
        let (status, lines) = served.text(path);
        assert_eq!(status, "200", "{path}");
        let end = |line: &str| line.split_once(':').or_fail(line).0.parse::<usize>().or_fail(line);
        (lines.lines().map(end).collect::<Vec<_>>(), lines)
    };
    assert_eq!(ends("/prefixes/0").0, [0]);
    assert_eq!(ends("/prefixes/7").0, [7]);
    assert_eq!(ends(&format!("/prefixes/{}", 64 * MIB)).0, [64 * MIB]);
    let whole = format!("/prefixes/{}", content.len());
    let (all, lines) = ends(&whole);
    assert_eq!(all, [64 * MIB, 128 * MIB, content.len()]);
    // Another process that only reads the disk finds the same checksums.
    let other = Served::start(&content, "2m");
    assert_eq!(other.text(&whole).1, lines);
    served.running.wait().assert_success("the end after the whole disk");
}

#[test]
fn invalid_requests_are_refused() {
    let served = Served::start(b"disk", "2s");
    for (path, status) in [
        ("/", "404"),
        ("/disk/", "404"),
        ("/disk/-1", "404"),
        ("/disk/../etc/passwd", "404"),
        ("/disk/99999999999999999999999", "404"),
        ("/disk/5", "416"),
        ("/prefixes/5", "416"),
    ] {
        assert_eq!(served.get(path, &["--path-as-is"]).0, status, "{path}");
    }
    assert_eq!(served.get("/disk/0", &["--data", "x"]).0, "405");
    served.running.wait().assert_failure(7, "no client for 2 s");
}

#[test]
fn a_disk_that_cannot_be_read_is_reported_by_the_next_response() {
    let served = Served::start(&disk::content(4, 8 << 20), "2m");
    let file = fs::OpenOptions::new().write(true).open(served.disk()).or_fail("the disk");
    file.set_len(1 << 20).or_fail("a truncation");
    served.get("/disk/0", &[]);
    let (status, message) = served.text("/disk/0");
    assert_eq!(status, "500");
    assert!(message.contains("became shorter while it was read"), "{message}");
}

#[test]
fn other_files_are_not_served() {
    let folder = tempfile::tempdir().or_fail("a folder");
    for (path, sentence) in [
        (folder.path().to_owned(), "is not a block device"),
        (folder.path().join("none"), "no such file"),
        ("/dev/zero".into(), "is not a block device"),
    ] {
        let finished = Program::new(BINARY).arg("serve").arg(&path).start().wait();
        finished.assert_failure(3, sentence);
    }
}
