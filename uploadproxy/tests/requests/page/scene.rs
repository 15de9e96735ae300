//! A browser in front of a proxy in front of an upload server.

use std::path::{Path, PathBuf};

use crate::BINARY;
use testkit::browser::{Browser, BrowserKind};
use testkit::fail::OrFail;
use testkit::random::Random;
use testkit::relay::Relay;
use testkit::upload_pod::{Server, UploadPod};
use testkit::upload_proxy::{NAMESPACE, UploadProxy, beside};

/// Replaces the clock with which the page compares gzip and the network: its first four times lie
/// so far apart that the network is slower on any machine.
const CLOCK: &str = "
    const real = performance.now.bind(performance);
    let calls = 0;
    performance.now = () => (calls < 4 ? 1000 ** calls++ : real() + 1e12);";

/// The PVC that receives the uploads.
pub(crate) const PVC: &str = "disk";

/// Everything that an upload by the page needs.
pub(crate) struct Scene {
    pub(crate) browser: Browser,
    pub(crate) front: Server,
    pub(crate) proxy: UploadProxy,
    pub(crate) upload_server: Server,
    pub(crate) pod: UploadPod,
    folder: tempfile::TempDir,
}

impl Scene {
    /// Starts a scene whose volume is for a disk.
    pub(crate) fn start(browser: BrowserKind) -> Self {
        Self::with(browser, |proxy, server| proxy.route(PVC, server.address()), |pod| pod)
    }

    /// Starts a scene for a disk, whose proxy limits the rate of uploads.
    pub(crate) fn throttled(browser: BrowserKind, bytes_per_second: u64) -> Self {
        let rate = bytes_per_second.to_string();
        let proxy = |proxy: UploadProxy, server: &Server| {
            proxy.route(PVC, server.address()).arg("--limit-rate").arg(&rate)
        };
        Self::with(browser, proxy, |pod| pod)
    }

    /// Starts a scene with another proxy or pod.
    pub(crate) fn with(
        browser: BrowserKind,
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
            browser: Browser::start(browser),
            front,
            proxy,
            upload_server,
            pod,
            folder: tempfile::tempdir().or_fail("a folder"),
        }
    }

    /// Returns a token for the PVC, like those of cdi-apiserver.
    pub(crate) fn token(&self) -> String {
        self.proxy.key().token(PVC, NAMESPACE)
    }

    /// Writes a raw image of `length` bytes. It is noise, so the page sends it uncompressed.
    pub(crate) fn image(&self, length: u64) -> PathBuf {
        let mut noise = vec![0; usize::try_from(length).or_fail("a length")];
        Random::new(1).fill(&mut noise);
        // The beginning of a boot sector, which no other kind of file has.
        noise[..3].copy_from_slice(&[0xEB, 0x63, 0x90]);
        self.image_of(&noise)
    }

    /// Writes a raw image with this content.
    pub(crate) fn image_of(&self, content: &[u8]) -> PathBuf {
        let path = self.folder.path().join("disk.raw");
        std::fs::write(&path, content).or_fail("an image");
        path
    }

    /// Opens the page at `url` and starts an upload of `image` with `token`.
    pub(crate) fn upload(&self, url: &str, token: &str, image: &Path) {
        self.choose(url, image);
        self.submit(token);
    }

    /// Opens the page at `url` and chooses `image`.
    pub(crate) fn choose(&self, url: &str, image: &Path) {
        self.browser.open(url);
        self.browser.run(CLOCK, &[]);
        self.browser.find("#file").send_keys(&image.to_string_lossy());
    }

    /// Types `token` and starts or resumes the upload.
    pub(crate) fn submit(&self, token: &str) {
        self.browser.find("#token").send_keys(token);
        self.browser.find("#start").click();
    }

    /// Lets the next page replace this one without asking it, as after a crash.
    pub(crate) fn let_page_crash(&self) {
        self.browser.run(
            "window.addEventListener('beforeunload', (event) => event.stopImmediatePropagation(), true);",
            &[],
        );
        self.upload_server.wait_for_status(&["\"state\":\"uploading\""]);
    }

    /// Reloads the page as after a crash, resumes the upload of `image` through `relay`, and waits
    /// for its end. Returns how many bytes `relay` has passed on before and since.
    pub(crate) fn resume_after_crash(&self, relay: &Relay, image: &Path) -> (u64, u64) {
        self.let_page_crash();
        self.choose(&relay.url(), image);
        self.browser.wait_for_text("#status", "disk.raw was interrupted");
        let before = relay.sent();
        self.submit(&self.token());
        self.wait_for_end("done");
        (before, relay.sent() - before)
    }

    /// Waits until the page shows the end of the upload, and returns its text. Fails the test
    /// unless the end is of this kind: `done` or `failed`.
    #[track_caller]
    pub(crate) fn wait_for_end(&self, kind: &str) -> String {
        let status = self.browser.find("#status");
        let ended = |_: &Browser| {
            Some(status.attribute("data-kind")).filter(|kind| kind.as_deref() != Some(""))
        };
        let found = self.browser.wait_for("the end of the upload", ended);
        let text = status.text();
        let answer = self.browser.find("#answer").text();
        assert_eq!(found.as_deref(), Some(kind), "{text} {answer}\n{}", self.front.log());
        text
    }

    /// Waits until the progress bar is beyond `part` of the whole.
    #[track_caller]
    pub(crate) fn wait_for_progress(&self, part: f64) {
        let bar = self.browser.find("#bar");
        let beyond = |_: &Browser| bar.property("value").as_f64().filter(|value| *value > part);
        self.browser.wait_for("progress", beyond);
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

/// Returns the CRC-64/NVME in hexadecimal digits, computed bit by bit.
pub(crate) fn crc64nvme(bytes: &[u8]) -> String {
    let shift = |crc: u64| if crc & 1 == 1 { crc >> 1 ^ 0x9A6C_9329_AC4B_C9B5 } else { crc >> 1 };
    let crc =
        bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u64::from(*byte), |crc, _| shift(crc)));
    format!("{:016x}", !crc)
}
