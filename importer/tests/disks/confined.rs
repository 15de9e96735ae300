//! The sandbox of the three programs: attacks from the threads of each stage are denied, the log
//! says what was applied, and a transfer makes only the listed system calls.
#![cfg(target_arch = "x86_64")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use testkit::attack::{
    HARMLESS, READING, RECEIVING, SENDING, STARTING, WRITING, assert_denied, attacked, results,
};
use testkit::clone_pod::ClonePod;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::Program;
use testkit::tools;
use testkit::upload_pod::UploadPod;
use testkit::upload_proxy::beside;

use crate::BINARY;

const UPLOAD: &str = "/v1beta1/upload";

/// A folder with a compressed image, whose decoder has threads of its own, and its disk.
struct Scene {
    folder: TempDir,
    content: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        let scene = Self { folder, content: disk::content(42, 6 << 20) };
        for name in ["source", "target", "attack"] {
            std::fs::create_dir(scene.path(name)).or_fail(name);
        }
        std::fs::write(scene.path("source/disk"), &scene.content).or_fail("a disk");
        tools::run(
            "xz",
            ["-0k", "--block-size=1MiB"]
                .map(Into::into)
                .into_iter()
                .chain([scene.path("source/disk")]),
        );
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Imports the image. The source is in one folder, the disk in another.
    fn import(&self, mode: &str) -> Program {
        std::fs::remove_file(self.path("target/disk.img")).ok();
        Program::new(BINARY)
            .args(["import", "-v", "--sandbox", mode])
            .arg(self.path("source/disk.xz"))
            .arg(self.path("target/disk.img"))
    }

    #[track_caller]
    fn assert_disk(&self, disk: &Path) {
        assert!(std::fs::read(disk).or_fail(disk.display()) == self.content);
    }
}

#[test]
#[ignore = "tools: xz"]
fn an_attacker_in_the_importer_is_stopped() {
    let scene = Scene::new();
    let report = scene.path("attack/report");
    for stage in [(STARTING, 5), (READING, 3), (WRITING, 1)] {
        let program = attacked(scene.import("require"), BINARY, &report, stage, usize::MAX);
        let finished = program.run();
        finished.assert_success("import");
        assert!(
            finished.stderr.contains("sandbox: files and TCP ports by Landlock ABI"),
            "{}",
            finished.stderr
        );
        assert_denied(&report, &[]);
        scene.assert_disk(&scene.path("target/disk.img"));
    }
}

#[test]
#[ignore = "tools: xz"]
fn without_the_sandbox_the_same_attacks_succeed() {
    let scene = Scene::new();
    let report = scene.path("attack/report");
    let program = attacked(scene.import("off"), BINARY, &report, (WRITING, 1), HARMLESS);
    program.run().assert_success("import");
    let results = results(&report);
    for name in ["open", "create", "unlink", "memfd", "code"] {
        assert!(results[name] >= 0, "{results:?}");
    }
}

#[test]
#[ignore = "tools: xz"]
fn an_attacker_in_the_upload_server_is_stopped() {
    let scene = Scene::new();
    let report = scene.path("attack/report");
    let server = beside(BINARY, "cdi-uploadserver");
    let body = std::fs::read(scene.path("source/disk.xz")).or_fail("an image");
    for stage in [(RECEIVING, 8), (WRITING, 1)] {
        let pod = UploadPod::new(&server).env("CDI_WORKERS_SANDBOX", "require");
        let running = pod.serve(attacked(pod.program(), BINARY, &report, stage, usize::MAX));
        let finished = running.post_last(UPLOAD, &body);
        finished.assert_success("upload");
        assert!(
            finished.stderr.contains("sandbox: files and TCP ports by Landlock ABI"),
            "{}",
            finished.stderr
        );
        assert_denied(&report, &[]);
        scene.assert_disk(&pod.disk());
    }
}

#[test]
#[ignore = "tools: xz"]
fn an_attacker_in_the_cloner_is_stopped() {
    let scene = Scene::new();
    let report = scene.path("attack/report");
    let (server, cloner) = (beside(BINARY, "cdi-uploadserver"), beside(BINARY, "cdi-cloner"));
    for stage in [(READING, 2), (SENDING, 6)] {
        let pod = UploadPod::new(&server);
        let running = pod.start();
        let url = running.url(UPLOAD);
        let clone = ClonePod::new(&cloner, pod.authority(), pod.client(), &url)
            .env("CDI_WORKERS_SANDBOX", "require")
            .block(&scene.path("source/disk"));
        let program = attacked(clone.program(), BINARY, &report, stage, usize::MAX);
        let finished = program.run();
        finished.assert_success("clone");
        // It may make sockets, but they reach only the port of its server.
        assert_denied(&report, &["socket"]);
        running.wait().assert_success("upload");
        scene.assert_disk(&pod.disk());
    }
}

/// The names of all system calls in a log of strace, from the line at which the filter is complete.
fn denied_calls(log: &Path) -> Vec<String> {
    let calls = std::fs::read_to_string(log).or_fail("the log of strace");
    let filter = "seccomp(SECCOMP_SET_MODE_FILTER";
    let (_, after) = calls.rsplit_once(filter).or_fail("a filter");
    assert!(after.lines().count() > 100, "strace saw few calls: {after}");
    let denied = after.lines().filter(|line| line.contains("EPERM") || line.contains("EACCES"));
    denied.map(str::to_owned).collect()
}

/// Runs `program` under strace, which writes all calls to `log`. glibc gives back memory as soon
/// as it can: otherwise only some runs make the calls for that.
fn traced(program: Program, log: &Path) -> Program {
    let words = ["-f", "-qq", "-o"].map(Into::into).into_iter().chain([log.into()]);
    let program = program
        .env("MALLOC_TRIM_THRESHOLD_", "0")
        .env("MALLOC_TOP_PAD_", "0")
        .env("MALLOC_MMAP_THRESHOLD_", (32 << 20).to_string());
    program.under::<std::ffi::OsString>("strace", words)
}

#[test]
#[ignore = "tools: strace, xz"]
fn an_import_makes_only_allowed_calls() {
    let scene = Scene::new();
    let log = scene.path("log");
    traced(scene.import("require"), &log).run().assert_success("import");
    assert_eq!(denied_calls(&log), Vec::<String>::new());
}

#[test]
#[ignore = "tools: strace, xz"]
fn an_upload_makes_only_allowed_calls() {
    let scene = Scene::new();
    let log = scene.path("log");
    let body = std::fs::read(scene.path("source/disk.xz")).or_fail("an image");
    let pod = UploadPod::new(&beside(BINARY, "cdi-uploadserver"));
    let pod = pod.env("CDI_WORKERS_SANDBOX", "require");
    let running = pod.serve(traced(pod.program(), &log));
    running.post_last(UPLOAD, &body).assert_success("upload");
    scene.assert_disk(&pod.disk());
    assert_eq!(denied_calls(&log), Vec::<String>::new());
}

#[test]
#[ignore = "tools: strace, xz"]
fn a_clone_makes_only_allowed_calls() {
    let scene = Scene::new();
    let log = scene.path("log");
    let pod = UploadPod::new(&beside(BINARY, "cdi-uploadserver"));
    let running = pod.start();
    let url = running.url(UPLOAD);
    let cloner = beside(BINARY, "cdi-cloner");
    let clone = ClonePod::new(&cloner, pod.authority(), pod.client(), &url)
        .env("CDI_WORKERS_SANDBOX", "require")
        .block(&scene.path("source/disk"));
    traced(clone.program(), &log).run().assert_success("clone");
    running.wait().assert_success("upload");
    scene.assert_disk(&pod.disk());
    assert_eq!(denied_calls(&log), Vec::<String>::new());
}

#[test]
#[ignore = "tools: strace, xz"]
fn a_target_that_cannot_be_opened_ends_the_program() {
    let scene = Scene::new();
    let target = scene.path("target");
    // The second fault hides what is there, and so which rights the process keeps.
    let faults = [("on", "openat", "EACCES"), ("on", "fstat", "EIO"), ("require", "openat", "EIO")];
    for (mode, call, error) in faults {
        // Only the first attempt fails. Without the rules the import would succeed.
        let fault = format!("inject={call}:error={error}:when=1");
        let words = ["-f", "-qq", "-o", "/dev/null", "-e", &fault, "-P"].map(OsString::from);
        let words = words.into_iter().chain([target.clone().into()]);
        let finished = scene.import(mode).under("strace", words).run();
        finished.assert_failure(7, &format!("cannot open {}, which", target.display()));
        assert!(!scene.path("target/disk.img").exists(), "{mode}: {call} {error}");
    }
}

#[test]
#[ignore = "tools: strace, xz"]
fn a_kernel_without_landlock_is_reported() {
    let scene = Scene::new();
    // strace answers the call as such a kernel does.
    let words =
        ["-f", "-qq", "-o", "/dev/null", "-e", "inject=landlock_create_ruleset:error=ENOSYS"];
    let finished = scene.import("on").under("strace", words).run();
    finished.assert_success("import");
    assert!(
        finished.stderr.contains("sandbox: files not restricted (the kernel or"),
        "{}",
        finished.stderr
    );
    scene.assert_disk(&scene.path("target/disk.img"));
    let finished = scene.import("require").under("strace", words).run();
    finished.assert_failure(1, "the sandbox is required, but files are not restricted");
}
