//! Upload pods.

use kubelet::controller;
use kubelet::network::Network;
use kubelet::pod::{self, RunningPod};
use kubelet::state::Terminated;
use kubelet::volumes::Claim;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::framing::{Part, form, form_content_type};
use testkit::https::Request;
use testkit::oci;

use super::scene::{
    CLAIM_BYTES, Certificates, assert_allocation, assert_disk, assert_succeeded, claims,
    disk_image, success, with_claim,
};

const CLIENT: &str = "client.upload-server.cdi.kubevirt.io";
pub(crate) const COMPLETE: &str = "Upload Complete";
const CONTAINER: &str = "cdi-upload-server";

/// A network for an upload pod, and the certificates of its server and client.
pub(crate) struct Upload {
    pub(crate) network: Network,
    certificates: Certificates,
}

impl Upload {
    pub(crate) fn new() -> Self {
        let certificates = Certificates::new("cdi-upload-disk", CLIENT);
        Self { network: Network::new(), certificates }
    }

    /// Starts a pod and waits until it is ready.
    fn start(&self, claim: &Claim, env: &[(&str, &str)]) -> RunningPod<'_> {
        let objects = with_claim(claim, [self.certificates.server_secret()]);
        let pod = controller::upload_server(claim, "server", CLIENT, env);
        let running = pod::start(&self.network, &pod, &objects);
        running.wait_until_ready();
        running
    }

    /// Sends `content` to `path` of a pod with these variables, as a form if the path is one for
    /// forms.
    pub(crate) fn send(
        &self,
        claim: &Claim,
        env: &[(&str, &str)],
        path: &str,
        content: &[u8],
    ) -> Terminated {
        let mut running = self.start(claim, env);
        let request = Request::post(&format!("/v1beta1/{path}"));
        let (request, body) = if path.contains("form") {
            let request = request.header("Content-Type", &form_content_type());
            (request, form(&[Part::file(content)]))
        } else {
            (request, content.to_vec())
        };
        self.certificates.send(&self.network, &running, request, &body).assert_uploaded();
        running.wait(CONTAINER)
    }
}

#[test]
#[ignore = "tools: mkfs.ext4, qemu-img"]
fn an_image_is_uploaded_by_every_path_with_and_without_preallocation() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let upload = Upload::new();
    for (file, path, preallocate) in [
        (&image.qcow2, "upload", "false"),
        (&image.raw, "upload", "false"),
        (&image.qcow2, "upload", "true"),
        (&image.qcow2, "upload-async", "true"),
        (&image.qcow2, "upload-form", "true"),
        (&image.qcow2, "upload-form-async", "true"),
    ] {
        let content = std::fs::read(file).or_fail("the image");
        let is_preallocated = preallocate == "true";
        for claim in claims() {
            let ended = upload.send(&claim, &[("PREALLOCATION", preallocate)], path, &content);
            let expected = success(COMPLETE, is_preallocated);
            assert_eq!(ended.upload(), expected, "{path}: {}", ended.log);
            assert!(!ended.out_of_memory, "{}", ended.log);
            assert_disk(&claim, &image.raw, image.virtual_size);
            assert_allocation(&claim, is_preallocated);
        }
    }
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn an_archive_of_files_is_uploaded() {
    let tar = oci::tar(&[("one.txt", b"1"), ("folder/two.txt", b"2")]);
    let claim = Claim::filesystem(CLAIM_BYTES);
    let ended = Upload::new().send(&claim, &[], "upload-archive", &tar);
    assert_succeeded(&ended.upload(), &ended, COMPLETE);
    assert_eq!(claim.names(), ["folder", "one.txt"]);
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn an_upload_succeeds_after_the_upload_pod_was_killed() {
    let upload = Upload::new();
    let claim = Claim::filesystem(CLAIM_BYTES);
    let mut running = upload.start(&claim, &[]);
    // As CDI's tests do it: the image's shell kills the first process of the container.
    let (code, printed) = running.exec(CONTAINER, &["/bin/sh", "-c", "kill 1"]);
    assert_eq!(code, 0, "{printed}");
    let ended = running.wait(CONTAINER);
    // With exit code 0 the container would not be restarted.
    assert_ne!(ended.code, 0, "{}", ended.log);
    let content = disk::content(3, 1 << 20);
    let ended = upload.send(&claim, &[], "upload", &content);
    assert_succeeded(&ended.upload(), &ended, COMPLETE);
    assert!(std::fs::read(claim.disk()).or_fail("the disk").starts_with(&content));
}
