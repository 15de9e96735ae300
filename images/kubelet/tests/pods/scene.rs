//! What the pods of several tests need: servers, claims, images and certificates.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use kubelet::controller::{self, CLAIM, Import};
use kubelet::network::{NODE, Network};
use kubelet::pod::{self, RunningPod};
use kubelet::state::{Terminated, Verdict};
use kubelet::volumes::{Claim, Objects};
use testkit::certs::{Authority, Identity, KeyKind, Offer};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::https::{Connection, Request, Response};
use testkit::images::{Compression, Content, Image, Spec};
use testkit::nginx::Nginx;

pub(crate) const MIB: u64 = 1 << 20;

/// Size of a claim: enough for the disk of [`disk_image`] and the file system around it.
pub(crate) const CLAIM_BYTES: u64 = 64 * MIB;

/// The name and address of this machine's servers for pods.
pub(crate) const SERVER: (&str, std::net::Ipv4Addr) = (testkit::certs::PROXIED_NAME, NODE);

/// Makes a claim of each kind.
pub(crate) fn claims() -> [Claim; 2] {
    [Claim::filesystem(CLAIM_BYTES), Claim::block(CLAIM_BYTES)]
}

/// Makes a claim of each kind, once without and once with preallocation.
pub(crate) fn claims_and_preallocation() -> impl Iterator<Item = (Claim, bool)> {
    let with = |preallocate| claims().map(|claim| (claim, preallocate));
    [false, true].into_iter().flat_map(with)
}

/// The objects of a namespace that contains only the claim `claim`.
pub(crate) fn with_claim(claim: &Claim) -> Objects<'_> {
    Objects { claims: [(CLAIM, claim)].into(), files: Default::default() }
}

/// Makes a compressed qcow2 image of 24 MiB, and its disk as a raw file.
pub(crate) fn disk_image(folder: &Path) -> Image {
    let spec = Spec { compression: Compression::Zlib, ..Spec::new(Content::Sparse) };
    spec.build(folder, "image")
}

/// A Secret or ConfigMap: its name, and the names and contents of its files.
pub(crate) type Files = (&'static str, Vec<(&'static str, String)>);

/// Runs an import pod on `claim` to its end.
pub(crate) fn import(
    network: &Network,
    claim: &Claim,
    import: &Import<'_>,
    files: &[Files],
) -> Terminated {
    let objects = Objects { files: files.iter().cloned().collect(), ..with_claim(claim) };
    pod::start(network, &controller::importer(claim, import), &objects).wait("importer")
}

/// The environment for importing `url`.
pub(crate) fn http(url: &str) -> [(&'static str, &str); 2] {
    [("IMPORTER_SOURCE", "http"), ("IMPORTER_ENDPOINT", url)]
}

/// The URL `SCHEME://SERVER:PORT/PATH` for pods.
pub(crate) fn url(scheme: &str, server: SocketAddr, path: &str) -> String {
    format!("{scheme}://{}:{}/{path}", SERVER.0, server.port())
}

/// Starts nginx without TLS, with these directives, for pods to reach.
pub(crate) fn serve_plainly(network: &Network, folder: &Path, directives: &str) -> Nginx {
    let nginx = Nginx::start(folder, false, directives);
    network.open(nginx.address());
    nginx
}

/// Starts nginx that serves `folder` over TLS with a certificate of `authority`, for pods to
/// reach.
pub(crate) fn serve(network: &Network, folder: &Path, authority: &Authority) -> Nginx {
    let (certificate, key) = authority.leaf_pem().or_fail("a certificate");
    std::fs::write(folder.join("server.crt"), certificate).or_fail("a certificate");
    std::fs::write(folder.join("server.key"), key).or_fail("a key");
    let nginx = Nginx::start(folder, true, "root .;");
    network.open(nginx.address());
    nginx
}

/// Fails the test unless the claim contains this disk; a file must have the mode and group that
/// CDI expects.
#[track_caller]
pub(crate) fn assert_disk(claim: &Claim, expected: &Path, bytes: u64) {
    disk::assert_same(&claim.disk(), expected, bytes, "the disk of the claim");
    if !claim.is_block() {
        let metadata = claim.disk().metadata().or_fail("the disk of the claim");
        assert_eq!((metadata.mode() & 0o7777, metadata.gid()), (0o660, kubelet::volumes::QEMU));
        assert_eq!(claim.names(), ["disk.img"]);
    }
}

/// Fails the test unless the container ended with success and was not killed for lack of memory.
#[track_caller]
pub(crate) fn assert_succeeded(verdict: &Verdict, ended: &Terminated, message: &str) {
    assert_eq!(*verdict, Verdict::success(message), "{}", ended.log);
    assert!(!ended.out_of_memory, "{}", ended.log);
}

/// The judgement of a controller on a success with this message.
pub(crate) fn success(message: &str, preallocated: bool) -> Verdict {
    Verdict::Succeeded { message: message.to_owned(), preallocated, labels: Vec::new() }
}

/// Bytes that the disk of a claim occupies on its file system.
pub(crate) fn allocated_bytes(claim: &Claim) -> u64 {
    disk::allocated_bytes(&claim.disk())
}

/// Fails the test unless a file is fully allocated exactly if it was preallocated. Devices are not
/// checked, since they have no holes.
#[track_caller]
pub(crate) fn assert_allocation(claim: &Claim, is_preallocated: bool) {
    if !claim.is_block() {
        let size = claim.disk().metadata().or_fail("the disk of the claim").len();
        assert_eq!(allocated_bytes(claim) >= size, is_preallocated);
    }
}

/// Certificates of an upload server and its client.
pub(crate) struct Certificates {
    pub(crate) authority: Authority,
    server: Identity,
    pub(crate) client: Identity,
}

impl Certificates {
    /// Makes certificates for a server behind the Service `service` and for a client named
    /// `client`.
    pub(crate) fn new(service: &str, client: &str) -> Self {
        let authority = Authority::new().or_fail("an authority");
        Self {
            server: authority.server_named(&[service.to_owned()], KeyKind::Rsa).or_fail("a server"),
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

    /// The Secret with the certificate of a clone source.
    pub(crate) fn client_secret(&self) -> Vec<(&'static str, String)> {
        vec![("tls.crt", self.client.certificate_pem.clone()), ("tls.key", self.client.key_pem())]
    }

    /// Posts `body` to an upload pod as the upload proxy does.
    pub(crate) fn send(
        &self,
        network: &Network,
        pod: &RunningPod<'_>,
        path: &str,
        body: &[u8],
    ) -> Response {
        self.exchange(network, pod, Request::post(path), body)
    }

    /// Like [`send`](Self::send), with another request that may have more headers.
    pub(crate) fn exchange(
        &self,
        network: &Network,
        pod: &RunningPod<'_>,
        request: Request,
        body: &[u8],
    ) -> Response {
        let offer = Offer { identity: Some(&self.client), ..Offer::default() };
        let config = self.authority.client_config_for(&offer).or_fail("a client");
        let address = (pod.address(), kubelet::scrape::PORT).into();
        let tcp = network.connect(address).or_fail("the upload pod");
        // TLS verifies a loopback address, because the certificate is not valid for the pod's
        // address.
        let mut connection =
            Connection::over(tcp, [127, 0, 0, 1].into(), &Arc::clone(&config)).or_fail("TLS");
        let request = request.length(body.len());
        connection.exchange(&request, body).or_fail("an answer")
    }
}
