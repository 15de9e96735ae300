//! The parts of the contract that every source fulfils.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::gateway::Fault;
use testkit::loopdev::LoopDevice;
use testkit::process::{Finished, Program};

use crate::contract::images::{DISK_BYTES, Images};
use crate::contract::servers::Server;

/// Exit code of a source that failed.
const SOURCE_FAILED: i32 = 3;

/// Size of an object whose content no compression in transit makes smaller.
const OBJECT_BYTES: u64 = 16 << 20;

/// With one connection, only what is needed is sent, and faults come where they are put.
const ONE_CONNECTION: [&str; 2] = ["--connections", "1"];

/// The folder of an import of these tests.
struct Scene {
    folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().or_fail("a folder") }
    }

    fn disk(&self) -> PathBuf {
        self.folder.path().join("disk.img")
    }

    fn import<S: Server>(&self, server: &S, target: &Path) -> Program {
        self.import_of(server, server.source(), target)
    }

    fn import_of<S: Server>(&self, server: &S, source: Vec<String>, target: &Path) -> Program {
        let importer = Program::new(crate::BINARY)
            .arg("import")
            .args(source)
            .arg(target)
            .args(server.options(self.folder.path()));
        server
            .environment()
            .into_iter()
            .fold(importer, |importer, (name, value)| importer.env(name, value))
    }

    /// Imports into a file, and returns its content.
    #[track_caller]
    fn fetch<S: Server>(&self, server: &S, more: &[&str], case: &str) -> (Vec<u8>, Finished) {
        let target = self.disk();
        let finished = self.import(server, &target).args(more).run();
        finished.assert_success(case);
        let bytes = std::fs::read(&target).or_fail(case);
        std::fs::remove_file(&target).or_fail(case);
        (bytes, finished)
    }

    /// Asserts that the import fails because of its source, and leaves nothing.
    #[track_caller]
    fn assert_refused(&self, program: Program, text: &str) {
        program.run().assert_failure(SOURCE_FAILED, text);
        assert!(!self.disk().exists(), "{text}: a target was left behind");
    }
}

/// Raw and qcow2, compressed in several ways, give the same disk in files and on used devices.
pub(crate) fn images<S: Server>() {
    let images = Images::build();
    let scene = Scene::new();
    for form in &images.forms {
        let case = format!("{}: {}", S::NAME, form.name);
        let server = S::start(&form.bytes, Vec::new());
        let (bytes, _) = scene.fetch(&server, &[], &case);
        assert!(bytes == images.disk, "{case}: the file differs");

        let device = LoopDevice::new(scene.folder.path(), DISK_BYTES, 512);
        std::fs::write(device.path(), vec![0xAA; usize::try_from(DISK_BYTES).unwrap()])
            .or_fail(&case);
        scene.import(&server, device.path()).run().assert_success(&case);
        assert!(
            std::fs::read(device.path()).or_fail(&case) == images.disk,
            "{case}: the device differs"
        );
    }
}

/// After a cut near the beginning, in the middle or near the end, little is sent again.
pub(crate) fn cuts<S: Server>() {
    let object = disk::content(5, OBJECT_BYTES);
    let scene = Scene::new();
    let whole = S::start(&object, Vec::new());
    scene.fetch(&whole, &ONE_CONNECTION, S::NAME);
    let needed = whole.sent_bytes();
    for percent in [10, 50, 90] {
        let case = format!("{}: cut at {percent} %", S::NAME);
        let server = S::start(&object, vec![Fault::Cut(OBJECT_BYTES * percent / 100)]);
        let (bytes, _) = scene.fetch(&server, &ONE_CONNECTION, &case);
        assert!(bytes == object, "{case}: the disk differs");
        let sent = server.sent_bytes();
        assert!(
            sent <= needed * 101 / 100 + S::UNIT_BYTES,
            "{case}: {sent} bytes were sent, {needed} without the cut"
        );
    }
}

/// An object that the server does not have is an error.
pub(crate) fn missing<S: Server>() {
    let scene = Scene::new();
    let server = S::start(&disk::content(1, 1 << 20), Vec::new());
    let (source, text) = server.missing();
    scene.assert_refused(scene.import_of(&server, source, &scene.disk()), text);
}

/// Progress shows the total, and the end that all of it came.
pub(crate) fn progress<S: Server>() {
    let object = disk::content(3, 4 << 20);
    let scene = Scene::new();
    let server = S::start(&object, Vec::new());
    let slow = ["--progress", "json", "--limit-rate", "2M"];
    let (_, finished) = scene.fetch(&server, &slow, S::NAME);
    let events = json_lines(&finished.stdout);
    let of = |kind: &str| {
        let events = events.iter().filter(|event| event["event"] == kind);
        events.cloned().collect::<Vec<_>>()
    };
    let total = object.len() as u64;
    let seen = of("progress");
    assert!(
        seen.iter().any(|event| {
            let percent = event["percent"].as_f64().unwrap_or_default();
            event["source_total"] == total && percent > 0.0 && percent < 100.0
        }),
        "{}: {seen:?}",
        S::NAME
    );
    assert_eq!(of("done")[0]["source_bytes"], total, "{}", S::NAME);
}

fn json_lines(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).or_fail(line)).collect()
}

/// Segments that arrive out of order are put together in order.
pub(crate) fn connections<S: Server>() {
    let object = disk::content(9, OBJECT_BYTES);
    let scene = Scene::new();
    let server = S::start(&object, vec![Fault::None, Fault::Cut(1 << 20), Fault::Cut(2 << 20)]);
    let (bytes, _) = scene.fetch(&server, &["--connections", "4"], S::NAME);
    assert!(bytes == object, "{}: the disk differs", S::NAME);
}

/// A server may be overloaded for a while, before the object and in its middle.
pub(crate) fn overload<S: Server>() {
    let object = disk::content(7, 4 << 20);
    let scene = Scene::new();
    let later = |status| Fault::Status(status, vec![("retry-after", "1".to_owned())]);
    let faults = vec![
        later(429),
        Fault::Cut(1 << 20),
        Fault::Status(503, Vec::new()),
        Fault::Status(502, Vec::new()),
        later(429),
    ];
    let server = S::start(&object, faults);
    let (bytes, _) = scene.fetch(&server, &ONE_CONNECTION, S::NAME);
    assert!(bytes == object, "{}: the disk differs", S::NAME);
}

/// A bit of the object that is flipped in transit is found.
pub(crate) fn corruption<S: Server>() {
    let object = disk::content(8, 4 << 20);
    let scene = Scene::new();
    let server = S::start(&object, vec![Fault::Corrupt(3 << 20)]);
    let import = scene.import(&server, &scene.disk());
    match S::CORRUPTION {
        Some(text) => scene.assert_refused(import, text),
        // Only a checksum from the user can reveal the flipped bit.
        None => {
            let sum = testkit::tools::filter("sha256sum", ["-"], &object);
            let sum = String::from_utf8_lossy(&sum).split(' ').next().unwrap().to_owned();
            let finished = import.args(["--checksum", &format!("sha256:{sum}")]).run();
            finished.assert_failure(6, "checksum mismatch");
            assert!(!scene.disk().exists(), "a target was left behind");
        }
    }
}

/// A wrong password is reported.
pub(crate) fn strangers<S: Server>() {
    let scene = Scene::new();
    let server = S::start_guarded(&disk::content(1, 1 << 20));
    scene.fetch(&server, &[], S::NAME);
    let text = server.lock_out();
    scene.assert_refused(scene.import(&server, &scene.disk()), text);
}
