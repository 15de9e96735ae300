//! The sandbox of the four programs: attacks from the threads of each stage are denied, the log
//! says what was applied, and a transfer makes only the listed system calls.
#![cfg(target_arch = "x86_64")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use testkit::attack::{
    HARMLESS, READING, RECEIVING, SECRET, SENDING, STARTING, WRITING, assert_denied, attacked,
    results,
};
use testkit::clone_pod::ClonePod;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::https::Request;
use testkit::kube_api::{KubeApi, ready_pvc};
use testkit::process::{Finished, Program};
use testkit::tools;
use testkit::upload_pod::UploadPod;
use testkit::upload_proxy::{NAMESPACE, UploadProxy, beside};

use crate::BINARY;

const UPLOAD: &str = "/v1beta1/upload";

#[derive(Debug, Clone, Copy)]
enum Job {
    Import,
    Upload,
    Clone,
    Proxy,
}

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
        let packed = tools::filter("xz", ["-0c", "--block-size=1MiB"], &scene.content);
        std::fs::write(scene.path("source/disk.xz"), packed).or_fail("an image");
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

    /// Runs the program of this job, changed by `adjust`, and asserts that the disk is right.
    fn transfer(&self, job: Job, adjust: impl Fn(Program) -> Program) {
        let proxy = UploadProxy::new(&beside(BINARY, "cdi-uploadproxy"));
        let name = format!("cdi-upload-disk.{NAMESPACE}.svc");
        let server = beside(BINARY, "cdi-uploadserver");
        let pod = UploadPod::of_cluster(&server, proxy.cluster(), &[name]);
        let (finished, disk) = match job {
            Job::Import => (adjust(self.import("require")).run(), self.path("target/disk.img")),
            Job::Upload => (self.upload(&pod, adjust), pod.disk()),
            Job::Clone => (self.clone_to(&pod, adjust), pod.disk()),
            Job::Proxy => (self.upload_by(&proxy, &pod, adjust), pod.disk()),
        };
        finished.assert_success(&format!("{job:?}"));
        let said = &finished.stderr;
        assert!(said.contains("sandbox: files and TCP ports by Landlock ABI"), "{job:?}: {said}");
        self.assert_disk(&disk);
    }

    fn upload(&self, pod: &UploadPod, adjust: impl Fn(Program) -> Program) -> Finished {
        let program = pod.program().env("CDI_WORKERS_SANDBOX", "require");
        let body = std::fs::read(self.path("source/disk.xz")).or_fail("an image");
        pod.serve(adjust(program)).post_last(UPLOAD, &body)
    }

    fn clone_to(&self, pod: &UploadPod, adjust: impl Fn(Program) -> Program) -> Finished {
        let server = pod.start();
        let cloner = beside(BINARY, "cdi-cloner");
        let clone = ClonePod::new(&cloner, pod.authority(), pod.client(), &server.url(UPLOAD))
            .env("CDI_WORKERS_SANDBOX", "require")
            .block(&self.path("source/disk"));
        let finished = adjust(clone.program()).run();
        finished.assert_success("clone");
        server.wait().assert_success("upload");
        finished
    }

    fn upload_by(
        &self,
        proxy: &UploadProxy,
        pod: &UploadPod,
        adjust: impl Fn(Program) -> Program,
    ) -> Finished {
        let server = pod.start();
        let api = KubeApi::start(&proxy.cluster().pem());
        api.set_object("disk", ready_pvc("disk"));
        let program = proxy.cluster_program(&api, Some(server.address()));
        let front = proxy.serve(adjust(program.env("CDI_WORKERS_SANDBOX", "require")));
        // Raw, which is 48 reads of 128 KiB or more.
        let body = std::fs::read(self.path("source/disk")).or_fail("an image");
        let request = Request::post(UPLOAD).header("Authorization", &proxy.bearer("disk"));
        let response = front.exchange(&request, &body);
        assert_eq!(response.status, 200, "{response:?}");
        server.wait().assert_success("upload");
        // The proxy is the child of strace or of the attacker.
        let id = front.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let child = children.or_fail("the children").trim().parse().ok().and_then(Pid::from_raw);
        rustix::process::kill_process(child.or_fail("a child"), Signal::TERM).or_fail("a signal");
        front.wait()
    }

    #[track_caller]
    fn assert_disk(&self, disk: &Path) {
        assert!(std::fs::read(disk).or_fail(disk.display()) == self.content);
    }
}

#[test]
#[ignore = "tools: xz"]
fn attackers_in_all_stages_are_stopped() {
    let scene = Scene::new();
    let report = scene.path("attack/report");
    for (job, stage, allowed) in [
        // On a slow machine, no more than four threads start.
        (Job::Import, (STARTING, 4), &[][..]),
        (Job::Import, (READING, 3), &[]),
        (Job::Import, (WRITING, 1), &[]),
        // Archives contain times of symbolic links, which only calls with names can set.
        (Job::Upload, (RECEIVING, 8), &["utimensat"]),
        (Job::Upload, (WRITING, 1), &["utimensat"]),
        // The cloner may make sockets. Over TCP they reach only the port of its server; UDP is for
        // looking up its name.
        (Job::Clone, (READING, 2), &["socket", "UDP"]),
        (Job::Clone, (SENDING, 6), &["socket", "UDP"]),
        // The proxy connects to the upload servers and the API server, over any TCP port.
        (Job::Proxy, (RECEIVING, 30), &["socket", "UDP", "connect"]),
        (Job::Proxy, (SENDING, 30), &["socket", "UDP", "connect"]),
    ] {
        scene.transfer(job, |program| attacked(program, BINARY, &report, stage, usize::MAX));
        assert_denied(&report, allowed);
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

/// A rule for the key would follow its file: also to this other name, which is beside the report.
#[test]
#[ignore = "tools: xz"]
fn the_key_of_the_upload_server_cannot_be_read_again() {
    let scene = Scene::new();
    let report = scene.path("attack/report");
    let pod = UploadPod::new(&beside(BINARY, "cdi-uploadserver"));
    let finished = scene.upload(&pod, |program| {
        let program = attacked(program, BINARY, &report, (WRITING, 1), usize::MAX);
        let other = report.with_file_name(SECRET);
        std::fs::remove_file(&other).or_fail("the secret");
        std::fs::hard_link(pod.tls("server.key"), &other).or_fail("a link to the key");
        program
    });
    finished.assert_success("upload");
    assert_denied(&report, &["utimensat"]);
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
fn transfers_make_only_allowed_calls() {
    let scene = Scene::new();
    let log = scene.path("log");
    for job in [Job::Import, Job::Upload, Job::Clone, Job::Proxy] {
        scene.transfer(job, |program| traced(program, &log));
        assert_eq!(denied_calls(&log), Vec::<String>::new(), "{job:?}");
    }
}

/// The kernel refuses a rule for a pipe, which must not cost all others.
#[test]
#[ignore = "tools: xz"]
fn a_pipe_among_the_files_keeps_the_sandbox() {
    let scene = Scene::new();
    let image = std::fs::read(scene.path("source/disk.xz")).or_fail("an image");
    let program = Program::new(BINARY)
        .args(["import", "-v", "--sandbox", "require", "/dev/stdin"])
        .arg(scene.path("target/disk.img"))
        .stdin_bytes(image);
    let finished = program.run();
    finished.assert_success("a pipe");
    assert!(finished.stderr.contains("sandbox: files and TCP ports"), "{}", finished.stderr);
    scene.assert_disk(&scene.path("target/disk.img"));
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
    let fault = "inject=landlock_create_ruleset:error=ENOSYS";
    let import =
        |mode| scene.import(mode).under("strace", ["-f", "-qq", "-o", "/dev/null", "-e", fault]);
    let finished = import("on").run();
    finished.assert_success("import");
    let said = &finished.stderr;
    assert!(said.contains("sandbox: files not restricted (the kernel or"), "{said}");
    scene.assert_disk(&scene.path("target/disk.img"));
    let sentence = "the sandbox is required, but files are not restricted";
    import("require").run().assert_failure(1, sentence);
}
