//! A browser in front of a proxy in front of an upload server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::BINARY;
use testkit::browser::{Browser, BrowserKind};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::upload_pod::{Server, UploadPod};
use testkit::upload_proxy::{NAMESPACE, UploadProxy, beside};

/// The PVC that is uploaded to.
pub(crate) const PVC: &str = "disk";

/// How long anything that a page shows is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// All that an upload by the page needs.
pub(crate) struct Scene {
    pub(crate) browser: Browser,
    pub(crate) front: Server,
    pub(crate) proxy: UploadProxy,
    pub(crate) upload_server: Server,
    pub(crate) pod: UploadPod,
    folder: tempfile::TempDir,
}

impl Scene {
    /// A scene whose volume is for a disk.
    pub(crate) fn start() -> Self {
        Self::with(|proxy, server| proxy.route(PVC, server.address()), |pod| pod)
    }

    /// A disk, through a proxy that lets so many bytes a second pass.
    pub(crate) fn throttled(bytes_per_second: u64) -> Self {
        let rate = bytes_per_second.to_string();
        let proxy = |proxy: UploadProxy, server: &Server| {
            proxy.route(PVC, server.address()).arg("--limit-rate").arg(&rate)
        };
        Self::with(proxy, |pod| pod)
    }

    /// A scene with something else in it.
    pub(crate) fn with(
        proxy: impl FnOnce(UploadProxy, &Server) -> UploadProxy,
        pod: impl FnOnce(UploadPod) -> UploadPod,
    ) -> Self {
        let plain = UploadProxy::new(BINARY);
        let upload_server = beside(BINARY, "cdi-uploadserver");
        let pod = pod(UploadPod::of_cluster(&upload_server, plain.cluster(), &[]));
        let upload_server = pod.start();
        let proxy = proxy(plain, &upload_server);
        let front = proxy.start();
        Self {
            browser: Browser::start(BrowserKind::Chromium),
            front,
            proxy,
            upload_server,
            pod,
            folder: tempfile::tempdir().or_fail("a folder"),
        }
    }

    /// A token for the PVC, as cdi-apiserver makes it.
    pub(crate) fn token(&self) -> String {
        self.proxy.key().token(PVC, NAMESPACE)
    }

    /// A raw image of so many bytes, which is its disk as well.
    pub(crate) fn image(&self, length: u64) -> PathBuf {
        let path = self.folder.path().join("disk.raw");
        std::fs::write(&path, disk::content(1, length)).or_fail("an image");
        path
    }

    /// Opens the page at `url` and lets it upload `image` with `token`.
    pub(crate) fn upload(&self, url: &str, token: &str, image: &Path) {
        self.choose(url, image);
        self.submit(token);
    }

    /// Opens the page at `url` and chooses `image`.
    pub(crate) fn choose(&self, url: &str, image: &Path) {
        self.browser.open(url);
        self.browser.find("#file").send_keys(&image.to_string_lossy());
    }

    /// Types `token` and lets the upload begin, or continue.
    pub(crate) fn submit(&self, token: &str) {
        self.browser.find("#token").send_keys(token);
        self.browser.find("#start").click();
    }

    /// Waits until the page says how the upload ended, and returns what it says. Fails the test if that is not of this
    /// kind: `done` or `failed`.
    #[track_caller]
    pub(crate) fn wait_for_end(&self, kind: &str) -> String {
        let status = self.browser.find("#status");
        let ended =
            |_: &Browser| Some(status.attribute("data-kind")).filter(|kind| kind.as_deref() != Some(""));
        let found = self.browser.wait_for("the end of the upload", PATIENCE, ended);
        let words = status.text();
        let said = self.browser.find("#answer").text();
        assert_eq!(found.as_deref(), Some(kind), "{words} {said}\n{}", self.front.log());
        words
    }

    /// Waits until the progress bar is beyond `part` of the whole.
    #[track_caller]
    pub(crate) fn wait_for_progress(&self, part: f64) {
        let bar = self.browser.find("#bar");
        let beyond = |_: &Browser| bar.property("value").as_f64().filter(|value| *value > part);
        self.browser.wait_for("progress", PATIENCE, beyond);
    }

    /// Fails the test unless the upload server has ended with success and the disk is `image`.
    #[track_caller]
    pub(crate) fn assert_uploaded(self, image: &Path) {
        self.upload_server.wait().assert_success("the upload server");
        let expected = std::fs::read(image).or_fail("the image");
        let disk = std::fs::read(self.pod.disk()).or_fail("the disk");
        assert!(disk == expected, "the disk is not the image");
    }
}
