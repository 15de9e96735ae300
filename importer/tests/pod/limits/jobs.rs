//! Programs that end by themselves, under limits.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tempfile::TempDir;
use testkit::clone_pod::ClonePod;
use testkit::origin::{Origin, Script};
use testkit::process::Program;
use testkit::upload_pod::UploadPod;
use testkit::upload_proxy::beside;
use testkit::{disk, ports, tools};

use super::{Limit, MOST, NOT_STARTED, UNCHANGED, assert_told, is_complete, program};

const IMPORTER: &str = crate::BINARY;

/// One run of a program, in a folder of its own.
struct Job {
    program: Program,
    /// Exit code of a run that no limit disturbs, and words of its output.
    end: (i32, &'static str),
    /// The disk that the program writes.
    disk: Option<PathBuf>,
    /// The termination message of its pod.
    message: Option<PathBuf>,
    /// Everything that has to exist as long as the run.
    _keep: Box<dyn std::any::Any>,
}

impl Job {
    fn new(program: Program, end: (i32, &'static str), keep: impl std::any::Any) -> Self {
        Self { program, end, disk: None, message: None, _keep: Box::new(keep) }
    }

    fn with_disk(self, disk: PathBuf) -> Self {
        Self { disk: Some(disk), ..self }
    }

    fn with_message(self, message: PathBuf) -> Self {
        Self { message: Some(message), ..self }
    }
}

/// Runs jobs with a growing limit, until the limit no longer disturbs them.
#[track_caller]
fn sweep(name: &str, job: impl Fn() -> Job) {
    for limit in Limit::all() {
        let mut unchanged = 0;
        for most in 1..=MOST {
            let case = format!("{name} with {most} {limit}");
            let job = job();
            let (code, words) = job.end;
            let finished = limit.wrap(job.program, most).start().wait();
            assert_told(&case, &finished);
            let said = format!("{}{}", finished.stdout, finished.stderr);
            if let Some(disk) = &job.disk {
                let told = said.contains("the disk is complete");
                assert_eq!(
                    is_complete(disk),
                    finished.code() == 0 || told,
                    "{case}: {}: {said}",
                    finished.code()
                );
            }
            if let Some(message) = &job.message
                && ![0, NOT_STARTED].contains(&finished.code())
            {
                let left = fs::read_to_string(message).unwrap_or_default();
                let is_told = said.contains("cannot write the termination message");
                assert!(!left.is_empty() || is_told, "{case}: no termination message: {said}");
            }
            let is_unchanged = finished.code() == code && said.contains(words);
            unchanged = if is_unchanged { unchanged + 1 } else { 0 };
            if unchanged == UNCHANGED {
                break;
            }
        }
        assert_eq!(unchanged, UNCHANGED, "{name} still fails with {MOST} {limit}");
    }
}

fn content() -> &'static [u8] {
    static CONTENT: OnceLock<Vec<u8>> = OnceLock::new();
    CONTENT.get_or_init(|| disk::content(1, 3 << 20))
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    (folder, path)
}

/// Creates a folder with a file `name` of `content`.
fn with_file(name: &str, content: &[u8]) -> (TempDir, PathBuf) {
    let (folder, path) = folder();
    fs::write(path.join(name), content).unwrap();
    (folder, path)
}

fn import(source: &Path, more: &[&str], folder: TempDir) -> Job {
    let disk = folder.path().join("disk.img");
    let program = Program::new(IMPORTER).arg("import").arg(source).arg(&disk).args(more);
    Job::new(program, (0, ""), folder).with_disk(disk)
}

#[test]
#[ignore = "root: rights of root"]
fn imports_of_files_report_how_they_end_under_limits() {
    let digest = String::from_utf8(tools::filter("sha256sum", [""; 0], content())).unwrap();
    let checksum = format!("sha256:{}", digest.split_whitespace().next().unwrap());
    sweep("import of a file", || {
        let (folder, path) = with_file("source", content());
        import(&path.join("source"), &["--checksum", &checksum], folder)
    });
    let packed = tools::filter("xz", ["-0", "--block-size=262144", "-c"], content());
    sweep("import of an xz file", || {
        let (folder, path) = with_file("source.xz", &packed);
        import(&path.join("source.xz"), &[], folder)
    });
}

#[test]
#[ignore = "slow: waits 4 s"]
fn imports_over_http_report_how_they_end_under_limits() {
    let origin = Origin::start(Script::new(content().to_vec())).unwrap();
    // By name, so that it has to be looked up.
    let url = origin.url("/disk").replace("127.0.0.1", "localhost");
    sweep("import over HTTP", || {
        let (folder, _) = folder();
        import(Path::new(&url), &["--retries", "2"], folder)
    });
}

#[test]
#[ignore = "root: rights of root"]
fn importer_pods_report_how_they_end_under_limits() {
    let origin = Origin::start(Script::new(content().to_vec())).unwrap();
    let url = origin.url("/disk").replace("127.0.0.1", "localhost");
    sweep("importer pod", || {
        let (folder, path) = folder();
        for name in ["data", "dev"] {
            fs::create_dir(path.join(name)).unwrap();
        }
        let [metrics] = ports::free();
        let program = Program::new(IMPORTER)
            .args(["-alsologtostderr", "-v=1"])
            .env("CDI_WORKERS_TEST_ROOT", &path)
            .env("CDI_WORKERS_CONTACT_SECONDS", "1")
            .env("CDI_WORKERS_TEST_METRICS_ADDR", metrics.to_string())
            .env("IMPORTER_SOURCE", "http")
            .env("IMPORTER_ENDPOINT", &url)
            .env("IMPORTER_CONTENTTYPE", "kubevirt")
            .env("OWNER_UID", "uid")
            .env("PREALLOCATION", "false")
            .env("FILESYSTEM_OVERHEAD", "0.06")
            .env("INSECURE_TLS", "false");
        Job::new(program, (0, ""), folder)
            .with_disk(path.join("data/disk.img"))
            .with_message(path.join("dev/termination-log"))
    });
}

#[test]
#[ignore = "root: rights of root"]
fn archive_and_image_tools_report_how_they_end_under_limits() {
    let (_tree, tree) = with_file("file", content());
    let archive = tools::filter("tar", ["-c", "-C", tree.to_str().unwrap(), "file"], &[]);
    sweep("unpack", || {
        let (folder, path) = with_file("source.tar", &archive);
        fs::create_dir(path.join("out")).unwrap();
        let program = Program::new(IMPORTER).arg("unpack");
        let program = program.arg(path.join("source.tar")).arg(path.join("out"));
        Job::new(program, (0, ""), folder).with_disk(path.join("out/file"))
    });
    for (binary, name) in [("cdi-importer", "cdi-importer"), ("cdi-importer-tools", "qemu-img")] {
        sweep(&format!("{name} info"), || {
            let (folder, path) = with_file("source", content());
            let program = program(binary).named(name).arg("info").arg(path.join("source"));
            Job::new(program, (0, ""), folder)
        });
    }
    sweep("size detection", || {
        let (folder, path) = with_file("source", content());
        // The termination message is not checked: it is a size, or there is none.
        fs::create_dir(path.join("dev")).unwrap();
        let program = program("cdi-importer-tools")
            .named("cdi-image-size-detection")
            .env("CDI_WORKERS_TEST_ROOT", &path)
            .arg("-image-path")
            .arg(path.join("source"));
        Job::new(program, (0, ""), folder)
    });
}

#[test]
#[ignore = "slow: waits 7 s"]
fn populators_report_how_they_end_under_limits() {
    sweep("populator", || {
        let (folder, path) = folder();
        fs::create_dir(path.join("dev")).unwrap();
        let name = path.join("ovirt-populator");
        symlink(beside(IMPORTER, "cdi-importer"), &name).unwrap();
        let [metrics] = ports::free();
        let program = Program::new(name)
            .args(["--engine-url=https://localhost:1/ovirt-engine/api", "--disk-id=1"])
            .args(["--owner-uid=uid", "--secret-name=secret", "--pvc-size=1073741824"])
            .arg(format!("--volume-path={}", path.join("disk.img").display()))
            .env("CDI_WORKERS_TEST_ROOT", &path)
            .env("CDI_WORKERS_CONTACT_SECONDS", "1")
            .env("CDI_WORKERS_TEST_METRICS_ADDR", metrics.to_string())
            .env("user", "u")
            .env("password", "p")
            .env("insecureSkipVerify", "true");
        Job::new(program, (255, "localhost"), folder).with_disk(path.join("disk.img"))
    });
}

#[test]
#[ignore = "root: rights of root"]
fn clones_report_how_they_end_under_limits() {
    sweep("cloner", || {
        let (tree, source) = with_file("file", content());
        let pod = UploadPod::new(&beside(IMPORTER, "cdi-uploadserver"));
        let server = pod.start();
        let url = server.url("/v1beta1/upload").replace("127.0.0.1", "localhost");
        let cloner = beside(IMPORTER, "cdi-cloner");
        let cloner = ClonePod::new(&cloner, pod.authority(), pod.client(), &url).files(&source);
        Job::new(cloner.program(), (0, ""), (tree, pod, server, cloner))
    });
    sweep("pack", || {
        let (folder, path) = with_file("source", content());
        Job::new(program("cdi-cloner").arg("pack").arg(&path), (0, ""), folder)
    });
}

#[test]
#[ignore = "slow: waits 10 s"]
fn programs_that_use_a_cluster_report_how_they_end_under_limits() {
    let kubeconfig = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://localhost:1"}}], "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}]}"#;
    sweep("kubectl-cdi upload", || {
        let (folder, path) = with_file("source", content());
        fs::write(path.join("kubeconfig"), kubeconfig).unwrap();
        let program = program("kubectl-cdi").arg("upload").arg(path.join("source"));
        let program = program
            .arg("pvc/disk")
            .env("XDG_STATE_HOME", &path)
            .env("KUBECONFIG", path.join("kubeconfig"));
        Job::new(program, (7, "refused"), folder)
    });
    sweep("poller", || {
        let (folder, path) = with_file("kubeconfig", kubeconfig.as_bytes());
        fs::create_dir(path.join("dev")).unwrap();
        let program = program("cdi-importer-tools")
            .named("cdi-source-update-poller")
            .args(["-ns", "default", "-cron", "cron", "-url", "docker://localhost:1/image"])
            .env("KUBECONFIG", path.join("kubeconfig"))
            .env("CDI_WORKERS_CONTACT_SECONDS", "1")
            .env("CDI_WORKERS_TEST_ROOT", &path);
        Job::new(program, (1, "refused"), folder)
    });
}
