//! Real clients, through the proxy and a real upload server to files and devices. Each must give
//! the disk that qemu-img reads from the image.

mod resumable;
mod tus;
mod virtctl;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::BINARY;
use testkit::cases::check_all;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Image, Spec};
use testkit::loopdev::LoopDevice;
use testkit::tools;
use testkit::upload_pod::{Server, UploadPod};
use testkit::upload_proxy::{PVC, UploadProxy, beside};

/// Termination message of the upload server after a disk was uploaded.
const UPLOADED: &str = r#"{"preallocationApplied":false,"message":"Upload Complete"}"#;

/// Arguments of curl, in which the last `@` stands for the file, and the upload path.
const WAYS: [(&[&str], &str); 9] = [
    (&["--data-binary", "@@"], "upload"),
    (&["--data-binary", "@@", "-H", "Expect:"], "upload-async"),
    (&["-X", "POST", "-T", "@"], "upload"),
    (&["-X", "POST", "-T", "@", "-H", "Expect: 100-continue"], "upload-async"),
    (&["-X", "POST", "-T", "@", "-H", "Transfer-Encoding: chunked"], "upload"),
    (&["--http1.0", "--data-binary", "@@"], "upload"),
    (&["-F", "file=@@"], "upload-form"),
    (&["-F", "comment=x", "-F", "file=@@"], "upload-form-async"),
    (&["-F", "file=@@", "-H", "Transfer-Encoding: chunked"], "upload-form"),
];

/// An upload pod with a proxy in front of it.
struct Pair {
    pod: UploadPod,
    upload_server: Server,
    proxy: UploadProxy,
    front: Server,
}

impl Pair {
    /// Starts a pair whose target is a file.
    fn new() -> Self {
        Self::with(|pod| pod, "kubevirt")
    }

    /// Starts a pair with the pod that `change` returns, for this content type.
    fn with(change: impl FnOnce(UploadPod) -> UploadPod, content: &str) -> Self {
        let proxy = UploadProxy::new(BINARY);
        let pod = UploadPod::of_cluster(&beside(BINARY, "cdi-uploadserver"), proxy.cluster(), &[]);
        let pod = change(pod);
        let upload_server = pod.start();
        let proxy = proxy.route_with(PVC, upload_server.address(), content);
        let front = proxy.start();
        Self { pod, upload_server, proxy, front }
    }

    /// Starts a pair whose proxy limits the rate of uploads.
    fn throttled(bytes_per_second: u64) -> Self {
        let pair = Self::new();
        let rate = bytes_per_second.to_string();
        let proxy = pair.proxy.arg("--limit-rate").arg(&rate);
        let front = proxy.start();
        Self { proxy, front, ..pair }
    }

    /// Sends `file` with curl and returns the status.
    fn curl(&self, args: &[&str], path: &str, file: &Path) -> String {
        let file = file.to_str().or_fail("a path of ASCII");
        let args = args.iter().map(|arg| {
            let placeholder = arg.rfind('@').filter(|_| arg.contains("@@") || *arg == "@");
            placeholder
                .map_or((*arg).to_owned(), |at| format!("{}{file}{}", &arg[..at], &arg[at + 1..]))
        });
        let fixed = ["-sS", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "60"];
        let ca = self.proxy.path("front-ca.crt").to_string_lossy().into_owned();
        let token = format!("Authorization: {}", self.proxy.bearer(PVC));
        let rest = ["--cacert".to_owned(), ca, "-H".to_owned(), token, self.front.url(path)];
        tools::run("curl", fixed.map(str::to_owned).into_iter().chain(args).chain(rest))
    }

    /// Returns the logs of both, for messages.
    fn logs(&self) -> String {
        format!("{}\n{}", self.front.log(), self.upload_server.log())
    }
}

/// One image sent in one way to one kind of target.
struct Case<'a> {
    args: &'static [&'static str],
    path: String,
    object: &'a Path,
    to_device: bool,
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = if self.to_device { "a device" } else { "a file" };
        let object = self.object.display();
        write!(f, "{object} by {:?} to {} on {target}", self.args, self.path)
    }
}

fn image(folder: &Path) -> Image {
    let spec = Spec {
        compression: Compression::Zlib,
        virtual_size: 6 << 20,
        ..Spec::new(Content::Sparse)
    };
    spec.build(folder, "image")
}

#[test]
#[ignore = "slow: 3 s of CPU time"]
fn uploads_by_curl_give_the_disk_that_qemu_img_reads() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path());
    let compressed = folder.path().join("image.xz");
    let bytes = tools::filter("xz", ["-c"], &std::fs::read(&image.raw).unwrap());
    std::fs::write(&compressed, bytes).unwrap();
    let mut cases = Vec::new();
    for (index, (args, path)) in WAYS.into_iter().enumerate() {
        let api = if index % 2 == 0 { "v1beta1" } else { "v1alpha1" };
        let path = format!("/{api}/{path}");
        for object in [&image.raw, &image.qcow2, &compressed] {
            for to_device in [false, true] {
                let path = path.clone();
                cases.push(Case { args, path, object, to_device });
            }
        }
    }
    check_all(cases, |case| {
        let folder = tempfile::tempdir().or_fail("a folder");
        let device =
            case.to_device.then(|| LoopDevice::new(folder.path(), image.virtual_size, 512));
        let pair = Pair::with(|pod| pod.block_on(device.as_ref()), "kubevirt");
        let status = pair.curl(case.args, &case.path, case.object);
        assert_eq!(status, "200", "{}", pair.logs());
        pair.upload_server.wait().assert_success("upload");
        disk::assert_same(&pair.pod.disk(), &image.raw, image.virtual_size, "upload");
        assert_eq!(pair.pod.message().as_deref(), Some(UPLOADED));
    });
}

#[test]
fn archives_by_curl_are_unpacked_on_every_path() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    std::fs::write(tree.join("a/b/file"), disk::content(1, 3_000_000)).unwrap();
    std::fs::write(tree.join("empty"), b"").unwrap();
    let archive = folder.path().join("tree.tar");
    let arguments: [PathBuf; 5] =
        ["-C".into(), tree.clone(), "-cf".into(), archive.clone(), ".".into()];
    tools::run("tar", arguments);
    let zipped = folder.path().join("tree.tar.gz");
    let bytes = tools::filter("gzip", ["-c"], &std::fs::read(&archive).unwrap());
    std::fs::write(&zipped, bytes).unwrap();
    for path in ["/v1beta1/upload", "/v1alpha1/upload-async"] {
        for file in [&archive, &zipped] {
            let pair = Pair::with(|pod| pod, "archive");
            let status = pair.curl(&["--data-binary", "@@"], path, file);
            assert_eq!(status, "200", "{path}: {}", pair.logs());
            pair.upload_server.wait().assert_success("an archive");
            let unpacked = std::fs::read(pair.pod.path("data/a/b/file")).unwrap();
            assert!(unpacked == disk::content(1, 3_000_000), "{path}");
            assert!(pair.pod.path("data/empty").is_file());
        }
    }
}

#[test]
fn failures_of_the_upload_server_reach_the_client() {
    let pair = Pair::with(|pod| pod.env("UPLOAD_IMAGE_SIZE", "1Mi"), "kubevirt");
    let content = disk::content(1, 2 << 20);
    let request = testkit::https::Request::post("/v1beta1/upload");
    let request = request.header("Authorization", &pair.proxy.bearer(PVC));
    let response = pair.front.exchange(&request, &content);
    assert_eq!(response.status, 400, "{response:?}");
    let sentence =
        "Saving stream failed: effective image size is larger than the reported available storage";
    assert!(response.text().starts_with(sentence), "{response:?}");
}

#[test]
fn a_broken_upload_leaves_the_pod_ready_for_the_next() {
    let pair = Pair::new();
    let content = disk::content(1, 4 << 20);
    let request = testkit::https::Request::post("/v1beta1/upload");
    let request = request.header("Authorization", &pair.proxy.bearer(PVC));
    let mut connection = pair.front.connect();
    connection.begin(&request.clone().length(content.len())).unwrap();
    connection.send(&content[..2048]).unwrap();
    pair.upload_server.wait_for_state("uploading");
    drop(connection);
    pair.upload_server.wait_until_idle();
    pair.front.exchange(&request, &content).assert_uploaded();
    pair.upload_server.wait().assert_success("the second attempt");
    assert!(std::fs::read(pair.pod.disk()).unwrap() == content);
}
