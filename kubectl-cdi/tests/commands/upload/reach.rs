//! Commands without a cluster, or with another server in its place.

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::adversary::{Adversary, Reply};
use testkit::certs::Authority;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::{Finished, Program};

use crate::{BINARY, write_kubeconfig};

/// A folder with an image, and a kubeconfig that names a server.
struct Laptop(TempDir);

impl Laptop {
    fn new(server: &str) -> Self {
        let laptop = Self(tempfile::tempdir().or_fail("a folder"));
        write_kubeconfig(laptop.path("config").as_ref(), server);
        std::fs::write(laptop.path("image"), disk::content(1, 3 << 20)).or_fail("an image");
        laptop
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Runs a command, in which `IMAGE` stands for a file.
    fn run(&self, line: &str) -> Finished {
        let words = line.replace("IMAGE", &self.path("image"));
        let program = Program::new(BINARY).args(words.split(' '));
        program.env("KUBECONFIG", self.path("config")).env("XDG_STATE_HOME", self.0.path()).run()
    }
}

/// Returns the URL of a server that does not run.
fn nobody() -> String {
    let [nobody] = testkit::ports::free();
    format!("https://{nobody}")
}

#[test]
fn a_server_that_is_not_a_cluster_is_reported_in_one_line() {
    let authority = Authority::new().or_fail("an authority");
    let tls = authority.server_config().or_fail("TLS");
    let missing = Adversary::start(|_, _| Reply::status(404, "<html>404 Not Found</html>"));
    let page = Adversary::start(|_, _| Reply::of("<html>Welcome</html>"));
    let stranger = Adversary::start_tls(|_, _| Reply::of("{}"), tls);
    for (url, sentence) in [
        (nobody(), " cannot be reached: Connection refused"),
        (missing.url(""), " is not a Kubernetes API server: it "),
        (page.url(""), " is not a Kubernetes API server: it does not answer in JSON"),
        (
            stranger.url(""),
            " is not trusted: invalid peer certificate: UnknownIssuer; set the file",
        ),
    ] {
        let laptop = Laptop::new(&url);
        for line in ["status", "status pvc/a", "token dv/a", "upload IMAGE dv/a --quiet"] {
            let finished = laptop.run(line);
            finished.assert_failure(7, sentence);
            assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
        }
    }
}

/// `openssl x509 -req -in dev.csr -CA ca.crt -CAkey ca.key` makes such a certificate, as many
/// instructions say. Valid until 2126.
const VERSION_1: &str = include_str!("version-1.pem");

#[test]
fn a_client_certificate_that_rustls_refuses_is_not_blamed_on_the_server() {
    let laptop = Laptop::new(&nobody());
    std::fs::write(laptop.path("dev.pem"), VERSION_1).or_fail("a certificate");
    let config = std::fs::read_to_string(laptop.path("config")).or_fail("a kubeconfig");
    let file = laptop.path("dev.pem");
    let user = format!("\"client-certificate\":\"{file}\",\"client-key\":\"{file}\"");
    let config = config.replace("\"token\":\"hunter2\"", &user);
    std::fs::write(laptop.path("config"), config).or_fail("a kubeconfig");
    let finished = laptop.run("status");
    finished
        .assert_failure(7, ": its client certificate is of X.509 version 1, and only version 3");
}

#[test]
fn a_dry_run_needs_no_cluster() {
    let laptop = Laptop::new(&nobody());
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
        let kubeconfig = laptop.path(kubeconfig);
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
}
