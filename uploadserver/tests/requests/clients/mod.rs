//! Real clients: each must give the disk that qemu-img reads from the image, on a file and on a
//! device.

mod refusals;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::BINARY;
use testkit::cases::check_all;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::framing::{chunked, oddly_chunked};
use testkit::https::Request;
use testkit::images::{Compression, Content, Image, Spec};
use testkit::loopdev::LoopDevice;
use testkit::random::Random;
use testkit::tools;
use testkit::upload_pod::{Server, UploadPod};

/// The Python for which Debian installs the package python3-requests.
const PYTHON: &str = "/usr/bin/python3";

/// A form by `requests`, which holds all of it in memory, and reads no answer before the last byte
/// is sent.
const REQUESTS_FORM: &str = r"
import sys, requests
url, image, ca, certificate, key = sys.argv[1:]
with open(image, 'rb') as file:
    answer = requests.post(url, files={'file': file}, data={'comment': 'x'}, verify=ca, cert=(certificate, key))
print(answer.status_code, end='')
";

/// A file object by `requests`, which states its length.
const REQUESTS_BODY: &str = r"
import sys, requests
url, image, ca, certificate, key = sys.argv[1:]
with open(image, 'rb') as file:
    answer = requests.post(url, data=file, verify=ca, cert=(certificate, key))
print(answer.status_code, end='')
";

/// A program and its way to send a file.
#[derive(Clone, Copy)]
enum Client {
    /// Arguments of curl, in which the last `@` stands for the image.
    Curl(&'static [&'static str]),
    /// A Python script.
    Python(&'static str),
}

const CLIENTS: [(&str, Client, &str); 15] = [
    ("--data-binary", Client::Curl(&["--data-binary", "@@"]), "upload"),
    (
        "--data-binary without Expect",
        Client::Curl(&["--data-binary", "@@", "-H", "Expect:"]),
        "upload-async",
    ),
    ("-T, which is a PUT", Client::Curl(&["-T", "@"]), "upload"),
    ("-T -X POST", Client::Curl(&["-T", "@", "-X", "POST"]), "upload"),
    (
        "-T with Expect",
        Client::Curl(&["-T", "@", "-X", "POST", "-H", "Expect: 100-continue"]),
        "upload-async",
    ),
    ("-T without Expect", Client::Curl(&["-T", "@", "-X", "POST", "-H", "Expect:"]), "upload"),
    (
        "-T in chunks",
        Client::Curl(&["-T", "@", "-X", "POST", "-H", "Transfer-Encoding: chunked"]),
        "upload-async",
    ),
    ("-F", Client::Curl(&["-F", "file=@@"]), "upload-form"),
    (
        "-F behind another field",
        Client::Curl(&["-F", "comment=x", "-F", "file=@@;type=application/x-disk"]),
        "upload-form-async",
    ),
    (
        "-F in chunks",
        Client::Curl(&["-F", "file=@@", "-H", "Transfer-Encoding: chunked"]),
        "upload-form",
    ),
    ("-T by HTTP/2", Client::Curl(&["--http2", "-T", "@", "-X", "POST"]), "upload"),
    ("-F by HTTP/2", Client::Curl(&["--http2", "-F", "file=@@"]), "upload-form-async"),
    ("--limit-rate", Client::Curl(&["-T", "@", "-X", "POST", "--limit-rate", "3M"]), "upload"),
    ("requests, a form", Client::Python(REQUESTS_FORM), "upload-form"),
    ("requests, a file", Client::Python(REQUESTS_BODY), "upload"),
];

impl Client {
    /// Sends `image` to `path` and returns the status that the program saw.
    fn send(self, pod: &UploadPod, server: &Server, path: &str, image: &Path) -> String {
        let url = server.url(path);
        match self {
            Self::Curl(args) => {
                let image = image.to_str().or_fail("a path of ASCII");
                let args = args.iter().map(|arg| {
                    let placeholder = arg.rfind('@').filter(|_| arg.contains("@@") || *arg == "@");
                    placeholder.map_or((*arg).to_owned(), |at| {
                        format!("{}{image}{}", &arg[..at], &arg[at + 1..])
                    })
                });
                curl(pod, args.chain([url]))
            }
            Self::Python(script) => {
                let files = ["ca.crt", "client.crt", "client.key"].map(|name| pod.tls(name));
                let arguments = ["-c".into(), script.into(), url.into()];
                let arguments = arguments.into_iter().chain([image.as_os_str().to_owned()]);
                tools::run(PYTHON, arguments.chain(files.map(PathBuf::into_os_string)))
            }
        }
    }
}

/// Runs curl as the client of `pod` and returns the status that it saw.
fn curl(pod: &UploadPod, args: impl Iterator<Item = String>) -> String {
    let path = |name| pod.tls(name).to_string_lossy().into_owned();
    let fixed = ["-sS", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "60"];
    let tls = [
        "--cacert".to_owned(),
        path("ca.crt"),
        "--cert".to_owned(),
        path("client.crt"),
        "--key".to_owned(),
        path("client.key"),
    ];
    tools::run("curl", fixed.map(str::to_owned).into_iter().chain(tls).chain(args))
}

/// One image sent by one client to one kind of target.
struct Case<'a> {
    client: &'static str,
    send: Client,
    path: String,
    object_name: &'static str,
    object: &'a Path,
    to_device: bool,
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = if self.to_device { "a device" } else { "a file" };
        write!(f, "{} by {} to {} on {target}", self.object_name, self.client, self.path)
    }
}

/// Returns the image in `folder`, and the files that must become its disk.
fn objects(folder: &Path) -> (Image, [(&'static str, PathBuf); 4]) {
    let image = Spec {
        compression: Compression::Zlib,
        virtual_size: 6 << 20,
        ..Spec::new(Content::Sparse)
    }
    .build(folder, "image");
    let compressed = |program, file: &Path| {
        let path = folder.join(program);
        let bytes = tools::filter(program, ["-c"], &std::fs::read(file).or_fail("an image"));
        std::fs::write(&path, bytes).or_fail(program);
        path
    };
    let objects = [
        ("raw", image.raw.clone()),
        ("qcow2", image.qcow2.clone()),
        ("qcow2.xz", compressed("xz", &image.qcow2)),
        ("raw.gz", compressed("gzip", &image.raw)),
    ];
    (image, objects)
}

#[test]
#[ignore = "slow: 7 s of CPU time"]
fn every_client_gives_the_disk_that_qemu_img_reads() {
    let folder = tempfile::tempdir().unwrap();
    let (image, objects) = objects(folder.path());
    let mut cases = Vec::new();
    for (client, send, path) in CLIENTS {
        for (object_name, object) in &objects {
            for to_device in [false, true] {
                let api = if to_device { "v1alpha1" } else { "v1beta1" };
                cases.push(Case {
                    client,
                    send,
                    path: format!("/{api}/{path}"),
                    object_name,
                    object,
                    to_device,
                });
            }
        }
    }
    check_all(cases, |case| {
        let folder = tempfile::tempdir().or_fail("a folder");
        let device =
            case.to_device.then(|| LoopDevice::new(folder.path(), image.virtual_size, 512));
        let pod = UploadPod::new(BINARY).block_on(device.as_ref());
        let server = pod.start();
        let status = case.send.send(&pod, &server, &case.path, case.object);
        assert_eq!(status, "200", "{}", server.log());
        let finished = server.wait();
        finished.assert_success("upload");
        disk::assert_same(&pod.disk(), &image.raw, image.virtual_size, "upload");
        let uploaded = r#"{"preallocationApplied":false,"message":"Upload Complete"}"#;
        assert_eq!(pod.message().as_deref(), Some(uploaded));
    });
}

#[test]
fn chunks_of_any_size_give_the_same_disk() {
    let mut random = Random::new(3);
    let content = disk::content(3, 2 << 20);
    for chunk_bytes in [0, 1, 511, 4096, 1 << 20] {
        // A chunk for every byte is slow, so less content is sent.
        let content = if chunk_bytes == 1 { &content[..20_000] } else { &content[..] };
        let body = match chunk_bytes {
            0 => oddly_chunked(content, &mut random),
            size => chunked(content, size, &[("x-unknown", "trailer")]),
        };
        let pod = UploadPod::new(BINARY);
        let server = pod.start();
        let response = server.exchange(&Request::post("/v1beta1/upload").chunked(), &body);
        response.assert_uploaded();
        server.wait().assert_success("chunks");
        let disk = std::fs::read(pod.disk()).unwrap();
        assert!(disk.starts_with(content), "chunks of {chunk_bytes}");
        assert!(disk.len() < content.len() + 512, "{} bytes", disk.len());
    }
}
