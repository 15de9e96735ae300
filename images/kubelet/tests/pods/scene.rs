//! What the pods need around them.

use std::path::Path;
use std::sync::Arc;

use kubelet::controller::CLAIM;
use kubelet::network::{NODE, Network};
use kubelet::pod::RunningPod;
use kubelet::state::{Terminated, Verdict};
use kubelet::volumes::{Claim, Objects};
use testkit::certs::{Authority, Identity, KeyKind, Offer};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::https::{Connection, Request, Response};
use testkit::images::{Compression, Content, Image, Spec};
use testkit::nginx::Nginx;

pub(crate) const MIB: u64 = 1 << 20;

/// Bytes of a claim: enough for the disk of [`disk_image`] and the filesystem around it.
pub(crate) const CLAIM_BYTES: u64 = 64 * MIB;

/// Under this name the servers of this machine are known to pods.
pub(crate) const SERVER: (&str, std::net::Ipv4Addr) = (testkit::certs::PROXIED_NAME, NODE);

/// A claim of each kind.
pub(crate) fn claims() -> [Claim; 2] {
    [Claim::filesystem(CLAIM_BYTES), Claim::block(CLAIM_BYTES)]
}

/// Objects of a namespace with the claim `claim`.
pub(crate) fn with_claim(claim: &Claim) -> Objects<'_> {
    Objects {
        claims: [(CLAIM, claim)].into(),
        files: Default::default(),
    }
}

/// A compressed qcow2 of 24 MiB, and the raw disk that it must become.
pub(crate) fn disk_image(folder: &Path) -> Image {
    let spec = Spec {
        compression: Compression::Zlib,
        ..Spec::new(Content::Sparse)
    };
    spec.build(folder, "image")
}

/// nginx that serves `folder` with TLS of `authority`, and pods can reach.
pub(crate) fn serve(network: &Network, folder: &Path, authority: &Authority) -> Nginx {
    let (certificate, key) = authority.leaf_pem().or_fail("a certificate");
    std::fs::write(folder.join("server.crt"), certificate).or_fail("a certificate");
    std::fs::write(folder.join("server.key"), key).or_fail("a key");
    let nginx = Nginx::start(folder, true, "root .;");
    network.open(nginx.address());
    nginx
}

/// Fails the test unless the claim holds this disk, with the mode and group that CDI expects of a file.
#[track_caller]
pub(crate) fn assert_disk(claim: &Claim, expected: &Path, bytes: u64) {
    disk::assert_same(&claim.disk(), expected, bytes, "the disk of the claim");
    if !claim.is_block() {
        use std::os::unix::fs::MetadataExt;
        let metadata = claim.disk().metadata().or_fail("the disk of the claim");
        assert_eq!(
            (metadata.mode() & 0o7777, metadata.gid()),
            (0o660, kubelet::volumes::QEMU)
        );
        assert_eq!(claim.names(), ["disk.img"]);
    }
}

/// Fails the test unless a container ended with success, without any of what runs against its limits.
#[track_caller]
pub(crate) fn assert_succeeded(verdict: &Verdict, ended: &Terminated, message: &str) {
    assert_eq!(*verdict, Verdict::success(message), "{}", ended.log);
    assert!(!ended.out_of_memory, "{}", ended.log);
}

/// Certificates of upload servers and their clients.
pub(crate) struct Certificates {
    pub(crate) authority: Authority,
    server: Identity,
    pub(crate) client: Identity,
}

impl Certificates {
    /// For a server behind the Service `service`, and a client of this name.
    pub(crate) fn new(service: &str, client: &str) -> Self {
        let authority = Authority::new().or_fail("an authority");
        Self {
            server: authority
                .server_named(&[service.to_owned()], KeyKind::Rsa)
                .or_fail("a server"),
            client: authority.client(client, KeyKind::Rsa).or_fail("a client"),
            authority,
        }
    }

    /// The Secret that an upload pod mounts.
    pub(crate) fn server_secret(&self) -> Vec<(&'static str, String)> {
        vec![
            ("tls.crt", self.server.certificate_pem.clone()),
            ("tls.key", self.server.key_pem()),
            ("ca.crt", self.authority.pem()),
        ]
    }

    /// The Secret that a clone source has its certificate from.
    pub(crate) fn client_secret(&self) -> Vec<(&'static str, String)> {
        vec![
            ("tls.crt", self.client.certificate_pem.clone()),
            ("tls.key", self.client.key_pem()),
        ]
    }

    /// A request to an upload pod, as the upload proxy makes it.
    pub(crate) fn send(&self, network: &Network, pod: &RunningPod<'_>, path: &str, body: &[u8]) -> Response {
        let offer = Offer {
            identity: Some(&self.client),
            ..Offer::default()
        };
        let config = self.authority.client_config_for(&offer).or_fail("a client");
        let address = (pod.address(), kubelet::scrape::PORT).into();
        let tcp = network.connect(address).or_fail("the upload pod");
        // By its address, for which it has no certificate in a cluster; ours are for loopback.
        let mut connection =
            Connection::over(tcp, [127, 0, 0, 1].into(), &Arc::clone(&config)).or_fail("TLS");
        let request = Request::post(path).length(body.len());
        connection.exchange(&request, body).or_fail(path)
    }
}
