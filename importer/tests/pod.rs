//! The pod face, as CDI's controllers see it: environment in; disk, termination message, metrics and exit code out.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;
use testkit::certs::Authority;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::origin::{Origin, Script};
use testkit::process::{Finished, Program};

const MIB: u64 = 1 << 20;

/// A folder that stands in for the file system of a pod.
struct Pod {
    root: TempDir,
    env: Vec<(String, String)>,
    metrics: String,
}

impl Pod {
    /// A pod in filesystem mode, with the environment that every pod gets and `env` on top.
    fn new(env: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().or_fail("a folder");
        for folder in ["data", "dev"] {
            std::fs::create_dir(root.path().join(folder)).or_fail(folder);
        }
        let metrics = free_address();
        let basic = [
            (
                "CDI_WORKERS_TEST_ROOT",
                root.path().to_str().or_fail("a path of ASCII"),
            ),
            ("CDI_WORKERS_TEST_METRICS_ADDR", metrics.as_str()),
            ("IMPORTER_CONTENTTYPE", "kubevirt"),
            ("OWNER_UID", "uid"),
            ("PREALLOCATION", "false"),
            ("FILESYSTEM_OVERHEAD", "0.06"),
            ("INSECURE_TLS", "false"),
            ("CACHE_MODE", ""),
        ];
        let env = basic
            .iter()
            .chain(env)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Self { root, env, metrics }
    }

    /// A pod that imports `url`.
    fn http(url: &str, env: &[(&str, &str)]) -> Self {
        let source = [("IMPORTER_SOURCE", "http"), ("IMPORTER_ENDPOINT", url)];
        Self::new(&[&source, env].concat())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn disk(&self) -> PathBuf {
        self.path("data/disk.img")
    }

    fn program(&self) -> Program {
        let program = Program::new(env!("CARGO_BIN_EXE_cdi-importer")).args(["-alsologtostderr", "-v=3"]);
        self.env
            .iter()
            .fold(program, |program, (name, value)| program.env(name, value))
    }

    fn run(&self) -> Finished {
        self.program().run()
    }

    /// The termination message, if one was written.
    fn message(&self) -> Option<String> {
        std::fs::read_to_string(self.path("dev/termination-log")).ok()
    }

    #[track_caller]
    fn assert_fails_with(&self, message: &str) {
        let finished = self.run();
        assert_eq!(
            (finished.code(), self.message().as_deref()),
            (1, Some(message)),
            "{}",
            finished.stderr
        );
        assert!(
            !finished.crashed() && !self.disk().exists(),
            "{}",
            finished.stderr
        );
    }

    #[track_caller]
    fn assert_succeeds_with(&self, message: &str) -> Finished {
        let finished = self.run();
        assert_eq!(
            (finished.code(), self.message().as_deref()),
            (0, Some(message)),
            "{}",
            finished.stderr
        );
        finished
    }
}

/// A loopback address that nobody listens on at the moment.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").or_fail("a port");
    listener.local_addr().or_fail("its address").to_string()
}

fn serve(script: Script) -> Origin {
    Origin::start(script).or_fail("an origin")
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().or_fail("a folder")).or_fail("create a folder");
    std::fs::write(path, text).or_fail("write a file");
}

const SUCCESS: &str =
    r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"message":"Import Complete"}"#;

#[test]
fn an_import_fills_grows_and_opens_the_disk_and_says_so() {
    let content = disk::content(5, 3 * MIB);
    let origin = serve(Script::new(testkit::tools::filter("gzip", ["-c"], &content)));
    // 11 MiB less 6 %, down to whole MiB: 10 MiB.
    let pod = Pod::http(&origin.url("/disk.img.gz"), &[("IMPORTER_IMAGE_SIZE", "11Mi")]);
    let finished = pod.assert_succeeds_with(SUCCESS);
    let disk = std::fs::read(pod.disk()).or_fail("the disk");
    assert_eq!(disk.len() as u64, 10 * MIB);
    assert!(disk.starts_with(&content), "the disk begins with the image");
    assert_eq!(pod.disk().metadata().or_fail("metadata").mode() & 0o7777, 0o660);
    assert_eq!(
        pod.path("dev/termination-log")
            .metadata()
            .or_fail("metadata")
            .mode()
            & 0o777,
        0o600
    );
    let fsync = format!(
        "Successfully completed fsync({}) syscall, committed to disk",
        pod.disk().display()
    );
    for line in [
        "] Starting importer",
        "] begin import process",
        "New phase: TransferDataFile",
        &fsync,
        SUCCESS,
    ] {
        assert!(
            finished.stderr.contains(line),
            "{line} is missing in\n{}",
            finished.stderr
        );
    }
}

#[test]
fn preallocation_is_done_and_reported() {
    let origin = serve(Script::new(vec![0; 4 << 20]));
    let pod = Pod::http(&origin.url("/disk"), &[("PREALLOCATION", "true")]);
    pod.assert_succeeds_with(
        r#"{"scratchSpaceRequired":false,"preallocationApplied":true,"message":"Import Complete"}"#,
    );
    let blocks = pod.disk().metadata().or_fail("metadata").blocks();
    assert!(blocks * 512 >= 4 * MIB, "{blocks} blocks");
}

#[test]
fn a_stale_disk_of_an_earlier_attempt_is_replaced() {
    let origin = serve(Script::new(disk::content(5, MIB)));
    let pod = Pod::http(&origin.url("/disk"), &[]);
    write(&pod.disk(), &"stale".repeat(1 << 20));
    pod.assert_succeeds_with(SUCCESS);
    assert_eq!(pod.disk().metadata().or_fail("metadata").len(), MIB);
}

#[test]
fn the_source_that_cannot_be_opened_is_named_as_upstream_names_it() {
    let gone = serve(Script {
        expires: [("/disk".to_owned(), (0, 404))].into(),
        ..Script::new("x")
    });
    Pod::http(&gone.url("/disk"), &[]).assert_fails_with(
        "Unable to connect to http data source: expected status code 200, got 404. Status: 404 Not Found",
    );
    let pod = Pod::http(&format!("http://{}/disk", free_address()), &[]);
    let finished = pod.run();
    finished.assert_failure(1, "HTTP request errored");
    let message = pod.message().or_fail("a message");
    assert!(
        message.starts_with("Unable to connect to http data source: HTTP request errored: "),
        "{message}"
    );
}

#[test]
fn a_bad_environment_is_refused_with_the_words_of_upstream() {
    for (env, message) in [
        (("IMPORTER_SOURCE", "glance"), "Unknown data source: glance"),
        (
            ("IMPORTER_SOURCE", "s3"),
            "Unable to process data: source s3 is not supported by this version",
        ),
        (
            ("IMPORTER_ENDPOINT", ""),
            "Unable to connect to http data source: endpoint \"IMPORTER_ENDPOINT\" is missing or blank",
        ),
        (
            ("IMPORTER_CHECKSUM", "md5:12"),
            "Unable to connect to http data source: invalid checksum: invalid md5 hash length: \
             expected 32 hex characters, got 2",
        ),
        (
            ("IMPORTER_CONTENTTYPE", "tarball"),
            "Unable to process data: Unknown content type: tarball",
        ),
    ] {
        Pod::http("http://127.0.0.1:1/disk", &[env]).assert_fails_with(message);
    }
    let pod = Pod::http(
        "http://127.0.0.1:1/disk",
        &[("IMPORTER_IMAGE_SIZE", "large"), ("IMPORTER_CHECKSUM", "x")],
    );
    pod.run().assert_failure(1, "IMPORTER_CHECKSUM");
    let message = pod.message().or_fail("a message");
    assert!(
        message.starts_with("Unable to process data: environment variable IMPORTER_IMAGE_SIZE: "),
        "{message}"
    );
}

#[test]
fn upstreams_silent_exits_leave_no_message() {
    for env in [
        vec![("PREALLOCATION", "")],
        vec![("PREALLOCATION", "yes")],
        vec![
            ("IMPORTER_SOURCE", "registry"),
            ("IMPORTER_CONTENTTYPE", "archive"),
        ],
    ] {
        let pod = Pod::http("http://127.0.0.1:1/disk", &env);
        let finished = pod.run();
        assert_eq!(
            (finished.code(), pod.message()),
            (1, None),
            "{env:?}\n{}",
            finished.stderr
        );
        let (name, _) = *env.last().or_fail("a variable");
        assert!(finished.stderr.contains(name), "{}", finished.stderr);
    }
    let pod = Pod::http("http://127.0.0.1:1/disk", &[]);
    std::fs::remove_dir(pod.path("data")).or_fail("unmount the volume");
    let finished = pod.run();
    finished.assert_failure(1, "cannot tell the space of the target");
    assert_eq!(pod.message(), None);
}

#[test]
fn bad_images_are_blamed_on_the_right_step() {
    let gzip = testkit::tools::filter("gzip", ["-c"], &disk::content(5, MIB));
    let half = gzip.get(..gzip.len() / 2).or_fail("half").to_vec();
    for (body, message) in [
        (
            Vec::new(),
            "Unable to process data: Unable to obtain information about data source: \
             could not process image header: EOF"
                .to_owned(),
        ),
        (
            half.clone(),
            format!(
                "Unable to process data: Unable to transfer source data to target file: \
                 the gzip stream is truncated after {} compressed bytes",
                half.len()
            ),
        ),
        (
            disk::content(5, 2 * MIB),
            format!(
                "Unable to process data: Unable to convert source data to target format: virtual image size {} is \
                 larger than the reported available storage {MIB}. A larger PVC is required",
                2 * MIB
            ),
        ),
    ] {
        let origin = serve(Script::new(body));
        Pod::http(&origin.url("/disk"), &[("IMPORTER_IMAGE_SIZE", "1Mi")]).assert_fails_with(&message);
    }
}

#[test]
fn a_corrupt_or_dependent_qcow2_is_refused_by_name() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let file = folder.path().join("image.qcow2");
    let path = file.to_str().or_fail("a path of ASCII");
    let refusal = |bytes: Vec<u8>| {
        let origin = serve(Script::new(bytes));
        let pod = Pod::http(&origin.url("/disk"), &[]);
        let finished = pod.run();
        assert_eq!(finished.code(), 1, "{}", finished.stderr);
        let message = pod.message().or_fail("a message");
        assert!(
            message.starts_with("Unable to process data: Unable to convert source data to target"),
            "{message}"
        );
        message
    };
    testkit::tools::run("qemu-img", ["create", "-q", "-f", "qcow2", path, "4M"]);
    let mut corrupt = std::fs::read(&file).or_fail("read the image");
    // `l1_size` of the header (qcow2.rst, bytes 36 to 39).
    corrupt.get_mut(36..40).or_fail("a header").fill(0xff);
    assert!(refusal(corrupt).contains("L1 size too big"));
    let create = [
        "create",
        "-q",
        "-u",
        "-f",
        "qcow2",
        "-F",
        "raw",
        "-b",
        "/etc/passwd",
        path,
        "4M",
    ];
    testkit::tools::run("qemu-img", create);
    assert!(refusal(std::fs::read(&file).or_fail("read the image")).contains("/etc/passwd"));
}

#[test]
fn a_wrong_checksum_is_final_and_leaves_no_disk() {
    let origin = serve(Script::new("what was not asked for"));
    let zeros = format!("md5:{}", "0".repeat(32));
    let pod = Pod::http(&origin.url("/disk"), &[("IMPORTER_CHECKSUM", &zeros)]);
    let mut digest = datapath::digest::Digest::new(datapath::digest::Algorithm::Md5);
    digest.update(b"what was not asked for");
    pod.assert_succeeds_with(&format!(
        "{{\"message\":\"Unable to process data: Unable to transfer source data to target file: checksum validation \
         failed: checksum mismatch: expected {zeros}, calculated {}\"}}",
        digest.finish()
    ));
    assert!(!pod.disk().exists());
}

#[test]
fn a_right_checksum_is_confirmed_in_the_log() {
    let content = disk::content(9, MIB);
    let mut digest = datapath::digest::Digest::new(datapath::digest::Algorithm::Sha512);
    digest.update(&content);
    let checksum = digest.finish();
    let origin = serve(Script::new(content));
    let pod = Pod::http(&origin.url("/disk"), &[("IMPORTER_CHECKSUM", &checksum)]);
    let finished = pod.assert_succeeds_with(SUCCESS);
    assert!(
        finished
            .stderr
            .contains(&format!("Checksum verification passed: {checksum}")),
        "{}",
        finished.stderr
    );
}

/// What the controller's `kubevirt_cdi_import_progress_total\{ownerUID="uid"\} (\d{1,3}\.?\d*)` would capture.
fn controller_reads(text: &str) -> Option<f64> {
    let (_, rest) = text.split_once("kubevirt_cdi_import_progress_total{ownerUID=\"uid\"} ")?;
    let digits = rest.chars().take(3).take_while(char::is_ascii_digit).count();
    let tail = rest.get(digits..)?;
    let point = usize::from(tail.starts_with('.'));
    let decimals = tail
        .get(point..)?
        .chars()
        .take_while(char::is_ascii_digit)
        .count();
    (digits > 0).then(|| rest.get(..digits + point + decimals)?.parse().ok())?
}

#[test]
fn progress_can_be_scraped_while_a_slow_server_sends() {
    let origin = serve(Script {
        rate: Some(MIB),
        ..Script::new(disk::content(5, 3 * MIB))
    });
    let pod = Pod::http(&origin.url("/disk"), &[]);
    let running = pod.program().start();
    let tls = daemon::tls::insecure_client_config().or_fail("TLS");
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_backend_preconfigured(tls)
        .build()
        .or_fail("a client");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .or_fail("a runtime");
    let scrape = || {
        runtime.block_on(async {
            let answer = client
                .get(format!("https://{}/metrics", pod.metrics))
                .send()
                .await
                .ok()?;
            answer.text().await.ok()
        })
    };
    let mut seen = Vec::new();
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(10) {
        match scrape() {
            Some(text) => seen.extend(controller_reads(&text)),
            // The process came to its end.
            None if !seen.is_empty() => break,
            None => {}
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    running.wait().assert_success("import");
    assert!(seen.is_sorted(), "{seen:?}");
    assert!(
        seen.iter().any(|&percent| percent > 1.0 && percent < 99.0),
        "{seen:?}"
    );
}

#[test]
fn sigterm_ends_an_import_without_a_trace_of_success() {
    let origin = serve(Script {
        rate: Some(200 << 10),
        ..Script::new(disk::content(5, 3 * MIB))
    });
    let pod = Pod::http(&origin.url("/disk"), &[]);
    let running = pod.program().start();
    std::thread::sleep(Duration::from_secs(1));
    running.signal(Signal::TERM);
    let finished = running.wait();
    assert_eq!(finished.code(), 143, "{}", finished.stderr);
    assert!(finished.wall < Duration::from_secs(6), "{:?}", finished.wall);
    assert!(!pod.disk().exists());
    assert_eq!(
        pod.message().as_deref(),
        Some("Unable to process data: stopped by SIGTERM")
    );
}

#[test]
fn a_blank_disk_has_the_usable_size() {
    for (preallocate, message) in [
        (
            "false",
            r#"{"preallocationApplied":false,"message":"Import Complete"}"#,
        ),
        (
            "true",
            r#"{"preallocationApplied":true,"message":"Import Complete"}"#,
        ),
    ] {
        let source = ("IMPORTER_SOURCE", "none");
        let pod = Pod::new(&[
            source,
            ("IMPORTER_IMAGE_SIZE", "100Mi"),
            ("PREALLOCATION", preallocate),
        ]);
        pod.assert_succeeds_with(message);
        let metadata = pod.disk().metadata().or_fail("metadata");
        assert_eq!((metadata.len(), metadata.mode() & 0o777), (98_566_144, 0o660));
        assert_eq!(
            metadata.blocks() * 512 >= metadata.len(),
            preallocate == "true",
            "{} blocks",
            metadata.blocks()
        );
    }
}

#[test]
fn a_blank_disk_needs_a_size_and_is_no_archive() {
    let blank = ("IMPORTER_SOURCE", "none");
    Pod::new(&[
        blank,
        ("IMPORTER_CONTENTTYPE", "archive"),
        ("IMPORTER_IMAGE_SIZE", "1Mi"),
    ])
    .assert_fails_with("Cannot create empty disk with content type archive");
    Pod::new(&[blank]).assert_fails_with(
        "Unable to process data: environment variable IMPORTER_IMAGE_SIZE: is not set or empty, \
         and a blank disk has no other size",
    );
}

#[test]
fn a_blank_disk_larger_than_the_volume_is_cut_to_it_with_a_warning() {
    let pod = Pod::new(&[("IMPORTER_SOURCE", "none"), ("IMPORTER_IMAGE_SIZE", "4Ei")]);
    let finished = pod.assert_succeeds_with(r#"{"preallocationApplied":false,"message":"Import Complete"}"#);
    assert!(
        finished
            .stderr
            .contains("Available space less than requested size, creating blank image sized to available"),
        "{}",
        finished.stderr
    );
}

#[test]
fn a_node_pull_follows_the_files_and_collects_the_labels() {
    let info = serve(Script::new(
        r#"{"env":["PATH=/bin","INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small"]}"#,
    ));
    let redirects = [("/info".to_owned(), vec![info.url("/info")])].into();
    let origin = serve(Script {
        redirects,
        ..Script::new(disk::content(5, MIB))
    });
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| {
        folder
            .path()
            .join(name)
            .to_str()
            .or_fail("a path of ASCII")
            .to_owned()
    };
    let (ready, done) = (path("ready"), path("done"));
    let pod = Pod::http(
        &origin.url("/disk.img"),
        &[
            ("IMPORTER_PULL_METHOD", "node"),
            ("IMPORTER_READY_FILE", &ready),
            ("IMPORTER_DONE_FILE", &done),
            // Ignored: the server is a container of the same pod.
            ("IMPORTER_CHECKSUM", "md5:00000000000000000000000000000000"),
        ],
    );
    let running = pod.program().start();
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        origin.requests().is_empty(),
        "nothing is asked before the server is ready"
    );
    std::fs::write(&ready, "fedora 40.img").or_fail("write the ready file");
    running.wait().assert_success("node pull");
    assert_eq!(
        pod.message().as_deref(),
        Some(
            r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"labels":{"instancetype.kubevirt.io/default-instancetype":"u1.small"},"message":"Import Complete"}"#
        )
    );
    assert!(Path::new(&done).exists());
    let first = origin.requests().into_iter().next().or_fail("a request");
    assert_eq!(first.request.path(), "/fedora%2040.img");
}

#[test]
fn mounted_certificates_credentials_and_headers_are_used_and_not_logged() {
    let authority = Authority::new().or_fail("an authority");
    let script = Script {
        basic_auth: Some("joe:hunter2".to_owned()),
        required_header: Some(("x-token".to_owned(), "swordfish".to_owned())),
        headers: vec![("Content-Type".to_owned(), "text/html".to_owned())],
        ..Script::new(disk::content(5, MIB))
    };
    let tls = authority.server_config().or_fail("TLS");
    let origin = Origin::start_tls(script, tls).or_fail("an origin");
    let env = [
        ("IMPORTER_ACCESS_KEY_ID", "joe"),
        ("IMPORTER_SECRET_KEY", "hunter2"),
        ("IMPORTER_EXTRA_HEADER_0", "X-Plain: yes"),
    ];
    let pod = Pod::http(&origin.url("/disk"), &env);
    let certs = pod.path("certs");
    write(&certs.join("tls.crt"), &authority.pem());
    write(&pod.path("extraheaders/0/token"), "X-Token: swordfish\n");
    let program = pod.program().env("IMPORTER_CERT_DIR", &certs);
    let finished = program.run();
    finished.assert_success("TLS");
    assert_eq!(pod.message().as_deref(), Some(SUCCESS));
    let warning = "Unexpected content type 'text/html'. Content might not be a KubeVirt image.";
    assert!(finished.stderr.contains(warning), "{}", finished.stderr);
    for secret in ["hunter2", "swordfish", "am9lOmh1bnRlcjI"] {
        assert!(!finished.stderr.contains(secret), "{secret}\n{}", finished.stderr);
    }
    let first = origin.requests().into_iter().next().or_fail("a request");
    assert_eq!(first.request.header("x-plain"), Some("yes"));
    assert_eq!(first.request.header("user-agent"), Some("cdi-golang-importer"));

    // Without the mounted authority the same server is not trusted.
    let stranger = Pod::http(&origin.url("/disk"), &env);
    stranger.run().assert_failure(1, "HTTP request errored");
    let message = stranger.message().or_fail("a message");
    assert!(
        message.starts_with("Unable to connect to http data source: HTTP request errored: "),
        "{message}"
    );
}

#[test]
fn klog_flags_are_accepted_and_unknown_ones_are_a_usage_error() {
    let importer = || Program::new(env!("CARGO_BIN_EXE_cdi-importer"));
    importer()
        .arg("-nonsense")
        .run()
        .assert_failure(2, "flag provided but not defined: -nonsense");
    let pod = Pod::new(&[("IMPORTER_SOURCE", "glance")]);
    let bare = pod
        .env
        .iter()
        .fold(importer(), |program, (name, value)| program.env(name, value));
    bare.run().assert_failure(1, "Unknown data source: glance");
}
