//! What the pods of several tests need: servers, claims, images and certificates.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use kubelet::controller::{self, CERTIFICATES, CLAIM, Import, MountPoint};
use kubelet::network::{NODE, Network};
use kubelet::pod::{self, RunningPod};
use kubelet::state::{Terminated, Verdict};
use kubelet::volumes::{Claim, Objects, QEMU};
use tempfile::TempDir;
use testkit::certs::{Authority, Identity, KeyKind, Offer};
use testkit::disk;
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::https::{Connection, Request, Response};
use testkit::images::{Compression, Content, Image, Spec};
use testkit::nginx::Nginx;
use testkit::oci;

pub(crate) const MIB: u64 = 1 << 20;

/// Size of a claim: enough for the disk of [`disk_image`] and the file system around it.
pub(crate) const CLAIM_BYTES: u64 = 64 * MIB;

/// The name and address of this machine's servers for pods.
pub(crate) const SERVER: (&str, std::net::Ipv4Addr) = (testkit::certs::PROXIED_NAME, NODE);

/// The certificate of the scene's authority, mounted for a source.
pub(crate) const TRUSTED: [(MountPoint, &str); 1] = [(CERTIFICATES, "ca")];

/// The message of an import that succeeds.
pub(crate) const COMPLETE: &str = "Import Complete";

/// Makes a claim of each kind.
pub(crate) fn claims() -> [Claim; 2] {
    [Claim::filesystem(CLAIM_BYTES), Claim::block(CLAIM_BYTES)]
}

/// The objects of a namespace that contains only the claim `claim` and these files.
pub(crate) fn with_claim<'a>(
    claim: &'a Claim,
    files: impl IntoIterator<Item = Files>,
) -> Objects<'a> {
    Objects { claims: [(CLAIM, claim)].into(), files: files.into_iter().collect() }
}

/// Makes a compressed qcow2 image of 24 MiB, and its disk as a raw file.
pub(crate) fn disk_image(folder: &Path) -> Image {
    let spec = Spec { compression: Compression::Zlib, ..Spec::new(Content::Sparse) };
    spec.build(folder, "image")
}

/// A Secret or ConfigMap: its name, and the names and contents of its files.
pub(crate) type Files = (&'static str, Vec<(&'static str, String)>);

/// The environment for importing `url`.
pub(crate) fn http(url: &str) -> [(&'static str, &str); 2] {
    [("IMPORTER_SOURCE", "http"), ("IMPORTER_ENDPOINT", url)]
}

/// The URL `SCHEME://SERVER:PORT/PATH` for pods.
pub(crate) fn url(scheme: &str, server: SocketAddr, path: &str) -> String {
    format!("{scheme}://{}:{}/{path}", SERVER.0, server.port())
}

/// A network, the files that its servers serve, and the authority of these servers.
pub(crate) struct Scene {
    pub(crate) network: Network,
    pub(crate) authority: Authority,
    pub(crate) folder: TempDir,
    /// The objects that import pods mount, in addition to the certificate `ca` of the authority.
    pub(crate) objects: Vec<Files>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self {
            network: Network::new(),
            authority: Authority::new().or_fail("an authority"),
            folder: tempfile::tempdir().or_fail("a folder"),
            objects: Vec::new(),
        }
    }

    /// A scene whose folder contains `image.qcow2` and `image.raw`.
    pub(crate) fn with_image() -> (Self, Image) {
        let scene = Self::new();
        let image = disk_image(scene.folder.path());
        (scene, image)
    }

    /// Writes a file to the folder.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.folder.path().join(name), content).or_fail(name);
    }

    /// Starts nginx with these directives.
    pub(crate) fn start_nginx(&self, tls: bool, directives: &str) -> Nginx {
        let (certificate, key) = self.authority.leaf_pem().or_fail("a certificate");
        self.write("server.crt", certificate);
        self.write("server.key", key);
        Nginx::start(self.folder.path(), tls, directives)
    }

    /// Starts nginx for pods to reach.
    pub(crate) fn serve(&self, tls: bool, directives: &str) -> Nginx {
        let nginx = self.start_nginx(tls, directives);
        self.network.open(nginx.address());
        nginx
    }

    /// Starts a registry with these images.
    pub(crate) fn start_registry(
        &self,
        tls: bool,
        images: &[(&str, oci::Image)],
    ) -> DockerRegistry {
        let authority = tls.then_some(&self.authority);
        let images: Vec<_> =
            images.iter().map(|(name, image)| (*name, std::slice::from_ref(image))).collect();
        DockerRegistry::start_with(Setup { authority, ..Setup::default() }, &images)
    }

    /// Starts a registry for pods to reach.
    pub(crate) fn serve_images(&self, tls: bool, images: &[(&str, oci::Image)]) -> DockerRegistry {
        let registry = self.start_registry(tls, images);
        self.network.open(registry.address());
        registry
    }

    /// Starts an import pod on `claim`.
    pub(crate) fn start(&self, claim: &Claim, import: &Import<'_>) -> RunningPod<'_> {
        let authority = ("ca", vec![("ca.pem", self.authority.pem())]);
        let objects = with_claim(claim, self.objects.iter().cloned().chain([authority]));
        pod::start(&self.network, &controller::importer(claim, import), &objects)
    }

    /// Runs an import pod on `claim` to its end.
    #[track_caller]
    pub(crate) fn import(&self, claim: &Claim, import: &Import<'_>) -> Terminated {
        let mut running = self.start(claim, import);
        let ended = running.wait("importer");
        if import.node_pull.is_some() {
            let server = running.wait("server");
            assert_eq!(server.code, 0, "{}", server.log);
        }
        ended
    }

    /// Imports to a claim of each kind, without and with preallocation. Fails the test unless the
    /// controller finds these labels, and each disk equals the file `expected`.
    #[track_caller]
    pub(crate) fn import_to_each(
        &self,
        import: &Import<'_>,
        expected: &str,
        labels: &[(&str, &str)],
    ) {
        for preallocated in [false, true] {
            let word = if preallocated { "true" } else { "false" };
            let env = &[import.env, &[("PREALLOCATION", word)]].concat();
            for claim in claims() {
                let ended = self.import(&claim, &Import { env, ..*import });
                self.assert_imported(&claim, &ended, expected, preallocated, labels);
            }
        }
    }

    /// Fails the test unless the import ended as the controller expects, and the disk of the claim
    /// equals the file `expected`.
    #[track_caller]
    pub(crate) fn assert_imported(
        &self,
        claim: &Claim,
        ended: &Terminated,
        expected: &str,
        preallocated: bool,
        labels: &[(&str, &str)],
    ) {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let labels = labels.iter().map(owned).collect();
        let wanted = Verdict::Succeeded { message: COMPLETE.to_owned(), preallocated, labels };
        assert_eq!(ended.import(), wanted, "{}", ended.log);
        assert!(!ended.out_of_memory, "{}", ended.log);
        // CDI's tests look for this line.
        let synced = if claim.is_block() { "/dev/cdi-block-volume" } else { "/data/disk.img" };
        let line = format!("Successfully completed fsync({synced}) syscall");
        assert!(ended.log.contains(&line), "{}", ended.log);
        let expected = self.folder.path().join(expected);
        let bytes = expected.metadata().or_fail(expected.display()).len();
        assert_disk(claim, &expected, bytes);
        assert_allocation(claim, preallocated);
    }
}

/// Fails the test unless the claim contains this disk; a file must have the mode and group that
/// CDI expects.
#[track_caller]
pub(crate) fn assert_disk(claim: &Claim, expected: &Path, bytes: u64) {
    disk::assert_same(&claim.disk(), expected, bytes, "the disk of the claim");
    if !claim.is_block() {
        let metadata = claim.disk().metadata().or_fail("the disk of the claim");
        assert_eq!((metadata.mode() & 0o7777, metadata.gid()), (0o660, QEMU));
        assert_eq!(claim.names(), ["disk.img"]);
    }
}

/// Fails the test unless a file is fully allocated exactly if it was preallocated. Devices are not
/// checked, since they have no holes.
#[track_caller]
pub(crate) fn assert_allocation(claim: &Claim, is_preallocated: bool) {
    if !claim.is_block() {
        let size = claim.disk().metadata().or_fail("the disk of the claim").len();
        let allocated = disk::allocated_bytes(&claim.disk());
        assert_eq!(allocated >= size, is_preallocated, "{allocated} of {size} are allocated");
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

/// Certificates of an upload server and its client.
pub(crate) struct Certificates {
    pub(crate) authority: Authority,
    server: Identity,
    client: Identity,
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

    /// The Secret `server` that an upload pod mounts.
    pub(crate) fn server_secret(&self) -> Files {
        let files = vec![
            ("tls.crt", self.server.certificate_pem.clone()),
            ("tls.key", self.server.key_pem()),
            ("ca.crt", self.authority.pem()),
        ];
        ("server", files)
    }

    /// The Secret `client` with the certificate of a clone source.
    pub(crate) fn client_secret(&self) -> Files {
        let certificate = self.client.certificate_pem.clone();
        ("client", vec![("tls.crt", certificate), ("tls.key", self.client.key_pem())])
    }

    /// Posts `body` to an upload pod as the upload proxy does.
    pub(crate) fn send(
        &self,
        network: &Network,
        pod: &RunningPod<'_>,
        request: Request,
        body: &[u8],
    ) -> Response {
        let offer = Offer { identity: Some(&self.client), ..Offer::default() };
        let config = self.authority.client_config_for(&offer).or_fail("a client");
        let address = (pod.address(), kubelet::PORT).into();
        let tcp = network.connect(address).or_fail("the upload pod");
        // TLS verifies a loopback address, because the certificate is not valid for the pod's
        // address.
        let mut connection = Connection::over(tcp, [127, 0, 0, 1].into(), &config).or_fail("TLS");
        connection.exchange(&request.length(body.len()), body).or_fail("an answer")
    }
}
