//! Commands without a cluster, or with another server in its place: what works all the same, and
//! which messages are printed.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::adversary::{Adversary, Reply};
use testkit::certs::Authority;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::{Finished, Program};

use crate::upload::BINARY;

/// A folder with a kubeconfig that names a server.
struct Laptop(TempDir);

impl Laptop {
    fn new(server: &str) -> Self {
        let laptop = Self(tempfile::tempdir().or_fail("a folder"));
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": server}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        fs::write(laptop.path("config"), config.to_string()).or_fail("a kubeconfig");
        fs::write(laptop.path("image"), disk::content(1, 3 << 20)).or_fail("an image");
        laptop
    }

    /// Returns one whose cluster does not run.
    fn alone() -> Self {
        let [nobody] = testkit::ports::free();
        Self::new(&format!("https://{nobody}"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a command, in which `IMAGE` stands for a file.
    fn run(&self, line: &str) -> Finished {
        let words = line.split(' ').map(|word| match word {
            "IMAGE" => self.path("image").into_os_string(),
            word => word.into(),
        });
        let program = Program::new(BINARY).args(words);
        program.env("KUBECONFIG", self.path("config")).env("XDG_STATE_HOME", self.0.path()).run()
    }
}

#[test]
fn a_dry_run_needs_no_cluster() {
    let laptop = Laptop::alone();
    // None of this depends on a cluster.
    for line in [
        "upload IMAGE dv/shown --size 10GB --access-mode RWX",
        "import s3://images/disk.img dv/shown --size 10G --access-mode ReadWriteMany",
        "upload IMAGE dv/shown --volume-mode Block",
    ] {
        let finished = laptop.run(&format!("{line} --dry-run client -o yaml"));
        finished.assert_success(line);
        assert_eq!(finished.stderr, "", "{line}");
        if line.contains("10G") {
            let size = "storage: '10000000000'";
            assert!(finished.stdout.replace('"', "'").contains(size), "{}", finished.stdout);
            assert!(finished.stdout.contains("- ReadWriteMany"), "{}", finished.stdout);
        }
    }
    for kubeconfig in ["config", "none"] {
        let kubeconfig = laptop.path(kubeconfig).display().to_string();
        let line = format!("upload IMAGE dv/shown -n vms --kubeconfig {kubeconfig} --dry-run");
        let finished = laptop.run(&format!("{line}=client -o json"));
        finished.assert_success("a dry run");
        let shown: Value = serde_json::from_str(&finished.stdout).or_fail(&finished.stdout);
        assert_eq!(shown["metadata"], json!({"name": "shown", "namespace": "vms"}));
        let size = &shown["spec"]["storage"]["resources"]["requests"]["storage"];
        assert_eq!(size, "11Mi", "{shown}");
        let warning = "the size assumes CDI's default filesystem overhead of 6 %; --dry-run server";
        assert!(finished.stderr.contains(warning), "{}", finished.stderr);
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
        let code = if kubeconfig.ends_with("none") { 2 } else { 7 };
        assert_eq!(laptop.run(&format!("{line}=server")).code(), code);
    }
    laptop.run("upload IMAGE dv/a -n A_B --dry-run client").assert_failure(2, "\"A_B\"");
    laptop
        .run("upload IMAGE dv/a --no-create --dry-run client")
        .assert_failure(2, "cannot be used with");
}

#[test]
fn a_cluster_that_does_not_run_is_reported_in_one_line() {
    let laptop = Laptop::alone();
    for line in [
        "status",
        "token dv/a",
        "upload IMAGE dv/a --quiet",
        "import https://example.org/a dv/a --size 1Gi --quiet",
    ] {
        let finished = laptop.run(line);
        finished.assert_failure(7, " cannot be reached: Connection refused");
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    }
}

#[test]
fn another_server_is_not_reported_as_a_cluster_without_cdi() {
    let page = "<html><body><h1>404 Not Found</h1><hr>nginx</body></html>";
    for (status, reason) in [(404, "it "), (200, "it does not answer in JSON")] {
        let server = Adversary::start(move |_, _| Reply::status(status, page));
        let laptop = Laptop::new(&server.url(""));
        for line in ["status", "status pvc/a", "token dv/a", "upload IMAGE dv/a"] {
            let sentence = format!("{} is not a Kubernetes API server: {reason}", server.address());
            let finished = laptop.run(line);
            finished.assert_failure(7, &sentence);
            assert!(!finished.stderr.contains("CDI is not installed"), "{}", finished.stderr);
        }
    }
}

#[test]
fn an_unknown_authority_of_the_api_server_is_reported() {
    let authority = Authority::new().or_fail("an authority");
    let tls = authority.server_config().or_fail("TLS");
    let server = Adversary::start_tls(|_, _| Reply::of("{}"), tls);
    let finished = Laptop::new(&server.url("")).run("status");
    let sentence = format!(
        "the certificate of the API server at {} is not trusted: invalid peer certificate: UnknownIssuer; ",
        server.address()
    );
    finished.assert_failure(7, &sentence);
    assert!(finished.stderr.contains("--certificate-authority"), "{}", finished.stderr);
    assert!(!finished.stderr.contains("network"), "{}", finished.stderr);
}

#[test]
#[ignore = "tools: qemu-img"]
fn impossible_commands_are_refused_before_the_cluster_is_contacted() {
    let laptop = Laptop::alone();
    let qcow2 = laptop.path("disk.qcow2");
    let words = ["create", "-q", "-f", "qcow2"].map(Into::into);
    testkit::tools::run(
        "qemu-img",
        words.into_iter().chain([qcow2.clone().into_os_string(), "8M".into()]),
    );
    let archive = format!("upload {} dv/a --archive --size 1Gi", qcow2.display());
    for (line, code, sentence) in [
        (
            "upload https://example.org/d.img dv/a",
            2,
            "kubectl cdi import https://example.org/d.img TARGET",
        ),
        ("upload - dv/a", 2, "an upload from standard input is not supported"),
        (&archive, 4, "is not a tar archive but an image in qcow2 format: leave out --archive"),
        (
            "import https://example.org/a dv/a --size 1Gi --checksum foo",
            2,
            "--checksum: invalid checksum format",
        ),
        ("upload IMAGE dv/a --size 10gb", 2, "write 10G or 10Gi"),
        ("upload IMAGE dv/a --access-mode RWM", 2, "use ReadWriteOnce (RWO), "),
    ] {
        laptop.run(line).assert_failure(code, sentence);
    }
}
