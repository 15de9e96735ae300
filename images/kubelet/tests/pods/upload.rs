//! Upload pods.

use kubelet::controller;
use kubelet::network::Network;
use kubelet::pod::{self, RunningPod};
use kubelet::state::Terminated;
use kubelet::volumes::{Claim, Objects};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::framing::{Part, form, form_content_type};
use testkit::https::Request;
use testkit::oci;

use super::scene::{
    CLAIM_BYTES, Certificates, MIB, allocated_bytes, assert_disk, assert_succeeded, claims,
    disk_image, success, with_claim,
};

pub(crate) const SERVICE: &str = "cdi-upload-disk";
const CLIENT: &str = "client.upload-server.cdi.kubevirt.io";
const COMPLETE: &str = "Upload Complete";

/// A network for an upload pod, and the certificates of its server and client.
struct Upload {
    network: Network,
    certificates: Certificates,
}

impl Upload {
    fn new() -> Self {
        Self::of(CLIENT)
    }

    /// The client's certificate is for the name `client`, while the pod accepts only [`CLIENT`].
    fn of(client: &str) -> Self {
        Self { network: Network::new(), certificates: Certificates::new(SERVICE, client) }
    }

    /// Starts a pod and waits until it is ready.
    fn start(&self, claim: &Claim, env: &[(&str, &str)]) -> RunningPod<'_> {
        let objects = Objects {
            files: [(SERVICE, self.certificates.server_secret())].into(),
            ..with_claim(claim)
        };
        let pod = controller::upload_server(claim, SERVICE, CLIENT, env);
        let running = pod::start(&self.network, &pod, &objects);
        running.wait_until_ready();
        running
    }

    /// Sends `content` to `path` of a pod with these variables, as a form if the path is one for
    /// forms.
    fn send(&self, claim: &Claim, env: &[(&str, &str)], path: &str, content: &[u8]) -> Terminated {
        let mut running = self.start(claim, env);
        let request = Request::post(path);
        let (request, body) = if path.contains("form") {
            let request = request.header("Content-Type", &form_content_type());
            (request, form(&[Part::file(content)]))
        } else {
            (request, content.to_vec())
        };
        self.certificates.exchange(&self.network, &running, request, &body).assert_uploaded();
        running.wait("cdi-upload-server")
    }
}

#[test]
#[ignore = "tools: mkfs.ext4, qemu-img"]
fn an_image_is_uploaded() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let upload = Upload::new();
    for (file, path) in [
        (&image.qcow2, "/v1beta1/upload"),
        (&image.raw, "/v1beta1/upload"),
        (&image.qcow2, "/v1beta1/upload-async"),
    ] {
        let content = std::fs::read(file).or_fail("the image");
        for claim in claims() {
            let ended = upload.send(&claim, &[], path, &content);
            assert_succeeded(&ended.upload(), &ended, COMPLETE);
            assert_disk(&claim, &image.raw, image.virtual_size);
            if !claim.is_block() {
                // Holes are kept. Like upstream's tests, this allows 1 MiB for the file system's
                // own data.
                let data = disk::data_bytes(&image.raw);
                assert!(data + MIB < image.virtual_size, "there are no holes to look at");
                assert!(allocated_bytes(&claim) < data + MIB, "{}", allocated_bytes(&claim));
            }
        }
    }
}

#[test]
#[ignore = "tools: mkfs.ext4, qemu-img"]
fn uploads_by_every_path_are_preallocated() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let content = std::fs::read(&image.qcow2).or_fail("the image");
    let upload = Upload::new();
    for path in ["upload", "upload-async", "upload-form", "upload-form-async"] {
        let claim = Claim::filesystem(CLAIM_BYTES);
        let path = format!("/v1beta1/{path}");
        let ended = upload.send(&claim, &[("PREALLOCATION", "true")], &path, &content);
        assert_eq!(ended.upload(), success(COMPLETE, true), "{path}: {}", ended.log);
        assert_disk(&claim, &image.raw, image.virtual_size);
        let size = claim.disk().metadata().or_fail("the disk").len();
        assert!(size >= image.virtual_size && allocated_bytes(&claim) >= size, "{path}");
    }
}

#[test]
#[ignore = "tools: mkfs.ext4, qemu-img"]
fn a_qcow2_may_have_exactly_the_requested_size() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let content = std::fs::read(&image.qcow2).or_fail("the image");
    let claim = Claim::filesystem(CLAIM_BYTES);
    let wanted = image.virtual_size.to_string();
    let env = [("UPLOAD_IMAGE_SIZE", wanted.as_str())];
    let ended = Upload::new().send(&claim, &env, "/v1beta1/upload", &content);
    assert_succeeded(&ended.upload(), &ended, COMPLETE);
    assert_disk(&claim, &image.raw, image.virtual_size);
    let size = claim.disk().metadata().or_fail("the disk").len();
    assert_eq!(size, image.virtual_size);
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn an_archive_of_files_is_uploaded() {
    let tar = oci::tar(&[("one.txt", b"1"), ("folder/two.txt", b"2")]);
    let claim = Claim::filesystem(CLAIM_BYTES);
    let ended = Upload::new().send(&claim, &[], "/v1beta1/upload-archive", &tar);
    assert_succeeded(&ended.upload(), &ended, COMPLETE);
    assert_eq!(claim.names(), ["folder", "one.txt"]);
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn strangers_and_disks_that_are_too_large_are_refused() {
    let claim = Claim::filesystem(CLAIM_BYTES);
    for (client, content, status, sentence) in [
        ("somebody.else", vec![1], 401, ""),
        (CLIENT, disk::content(1, CLAIM_BYTES), 400, "effective image size is larger"),
    ] {
        let upload = Upload::of(client);
        let running = upload.start(&claim, &[]);
        let request = Request::post("/v1beta1/upload");
        let answer = upload.certificates.exchange(&upload.network, &running, request, &content);
        assert_eq!(answer.status, status, "{}", answer.text());
        assert!(answer.text().contains(sentence), "{}", answer.text());
        assert_eq!(claim.names(), [""; 0]);
    }
}
