//! The surroundings of the pods.

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

/// Bytes of a claim: enough for the disk of [`disk_image`] and the filesystem around it.
pub(crate) const CLAIM_BYTES: u64 = 64 * MIB;

/// Under this name the servers of this machine are known to pods.
pub(crate) const SERVER: (&str, std::net::Ipv4Addr) = (testkit::certs::PROXIED_NAME, NODE);

/// A claim of each kind.
pub(crate) fn claims() -> [Claim; 2] {
    [Claim::filesystem(CLAIM_BYTES), Claim::block(CLAIM_BYTES)]
}

/// A claim of each kind, for a disk that is allocated as it comes and for one that is allocated before.
pub(crate) fn claims_and_preallocation() -> impl Iterator<Item = (Claim, bool)> {
    let with = |preallocate| claims().map(|claim| (claim, preallocate));
    [false, true].into_iter().flat_map(with)
}

/// Objects of a namespace with the claim `claim`.
pub(crate) fn with_claim(claim: &Claim) -> Objects<'_> {
    Objects { claims: [(CLAIM, claim)].into(), files: Default::default() }
}

/// A compressed qcow2 of 24 MiB, and the raw disk that it must become.
pub(crate) fn disk_image(folder: &Path) -> Image {
    let spec = Spec { compression: Compression::Zlib, ..Spec::new(Content::Sparse) };
    spec.build(folder, "image")
}

/// A Secret or ConfigMap: its name, and its files with their content.
pub(crate) type Files = (&'static str, Vec<(&'static str, String)>);

/// Runs an import pod on `claim` to its end.
pub(crate) fn import(network: &Network, claim: &Claim, import: &Import<'_>, files: &[Files]) -> Terminated {
    let objects = Objects { files: files.iter().cloned().collect(), ..with_claim(claim) };
    pod::start(network, &controller::importer(claim, import), &objects).wait("importer")
}

/// The environment of an import of `url`.
pub(crate) fn http(url: &str) -> [(&'static str, &str); 2] {
    [("IMPORTER_SOURCE", "http"), ("IMPORTER_ENDPOINT", url)]
}

/// `SCHEME://SERVER:PORT/PATH`, as pods find it.
pub(crate) fn url(scheme: &str, server: SocketAddr, path: &str) -> String {
    format!("{scheme}://{}:{}/{path}", SERVER.0, server.port())
}

/// nginx without TLS, with these directives, that pods can reach.
pub(crate) fn serve_plainly(network: &Network, folder: &Path, directives: &str) -> Nginx {
    let nginx = Nginx::start(folder, false, directives);
    network.open(nginx.address());
    nginx
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
        let metadata = claim.disk().metadata().or_fail("the disk of the claim");
        assert_eq!((metadata.mode() & 0o7777, metadata.gid()), (0o660, kubelet::volumes::QEMU));
        assert_eq!(claim.names(), ["disk.img"]);
    }
}

/// Fails the test unless a container ended with success, without any of what runs against its limits.
#[track_caller]
pub(crate) fn assert_succeeded(verdict: &Verdict, ended: &Terminated, message: &str) {
    assert_eq!(*verdict, Verdict::success(message), "{}", ended.log);
    assert!(!ended.out_of_memory, "{}", ended.log);
}

/// The conclusion of a controller from a success with this message, preallocated or not.
pub(crate) fn success(message: &str, preallocated: bool) -> Verdict {
    Verdict::Succeeded { message: message.to_owned(), preallocated, labels: Vec::new() }
}

/// Bytes that the disk of a claim takes on its filesystem.
pub(crate) fn allocated_bytes(claim: &Claim) -> u64 {
    // In units of 512 bytes, whatever the blocks of the filesystem (inode(7)).
    disk::allocated_bytes(&claim.disk())
}

/// Fails the test unless a file has all of its bytes allocated exactly if it was preallocated. Devices have no holes.
#[track_caller]
pub(crate) fn assert_allocation(claim: &Claim, is_preallocated: bool) {
    if !claim.is_block() {
        let size = claim.disk().metadata().or_fail("the disk of the claim").len();
        assert_eq!(allocated_bytes(claim) >= size, is_preallocated);
    }
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

    /// The Secret that a clone source has its certificate from.
    pub(crate) fn client_secret(&self) -> Vec<(&'static str, String)> {
        vec![("tls.crt", self.client.certificate_pem.clone()), ("tls.key", self.client.key_pem())]
    }

    /// A request to an upload pod, as the upload proxy makes it.
    pub(crate) fn send(&self, network: &Network, pod: &RunningPod<'_>, path: &str, body: &[u8]) -> Response {
        self.exchange(network, pod, Request::post(path), body)
    }

    /// The same with other headers than those that every request has.
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
        // By its address, for which it has no certificate in a cluster; ours are for loopback.
        let mut connection =
            Connection::over(tcp, [127, 0, 0, 1].into(), &Arc::clone(&config)).or_fail("TLS");
        let request = request.length(body.len());
        connection.exchange(&request, body).or_fail("an answer")
    }
}
