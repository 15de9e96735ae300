//! A registry that fails, sends wrong data, or is overloaded.

use std::time::{Duration, Instant};

use testkit::certs::Authority;
use testkit::disk;
use testkit::docker_registry::{Auth, DockerRegistry, Setup, TokenIssuer};
use testkit::fail::OrFail;
use testkit::gateway::{Fault, Gateway, Plan};
use testkit::oci::{Compression, Image};
use testkit::origin::{Origin, Script};
use testkit::wire::Request;

use super::scene::{MIB, SOURCE_FAILED, Scene, behind};

/// Size of the disk; the layer is a little larger.
const DISK_BYTES: u64 = 8 * MIB;

struct Broken {
    scene: Scene,
    registry: DockerRegistry,
    content: Vec<u8>,
}

fn is_blob(request: &Request) -> bool {
    request.path().contains("/blobs/")
}

fn is_manifest(request: &Request) -> bool {
    request.path().contains("/manifests/")
}

impl Broken {
    /// A registry whose layer is protected only by its digest.
    fn new() -> Self {
        Self::with(Setup::default())
    }

    fn with(setup: Setup<'_>) -> Self {
        let content = disk::content(1, DISK_BYTES);
        let images = [Image::of_disk(&content, Compression::None)];
        Self {
            scene: Scene::new(),
            registry: DockerRegistry::start_with(setup, &[("a", &images)]),
            content,
        }
    }

    /// A gateway with faults for the layer; the configuration, the first blob, arrives well.
    fn blobs(&self, faults: &[Fault]) -> Gateway {
        let faults = [&[Fault::None], faults].concat();
        self.gateway(is_blob, faults)
    }

    fn gateway(&self, matching: fn(&Request) -> bool, faults: Vec<Fault>) -> Gateway {
        let plan = Plan { matching, faults, ..Plan::default() };
        // With TLS, because the importer tries TLS first.
        let authority = Authority::new().or_fail("an authority");
        let tls = authority.server_config().or_fail("TLS");
        Gateway::start_tls(self.registry.address(), plan, tls).or_fail("a gateway")
    }

    #[track_caller]
    fn assert_imports(&self, gateway: &Gateway, case: &str) {
        let program = self.scene.import(&behind(gateway, "a"));
        self.scene.assert_imports(program, &self.content, case);
    }

    #[track_caller]
    fn assert_refused(&self, gateway: &Gateway, text: &str) {
        let program = self.scene.import(&behind(gateway, "a"));
        self.scene.assert_refused(program, SOURCE_FAILED, text);
    }
}

#[test]
#[ignore = "server: docker-registry"]
fn a_busy_registry_is_asked_again_after_the_time_that_it_names() {
    let broken = Broken::new();
    let busy = Fault::Answer(
        429,
        vec![("Retry-After", "3".to_owned())],
        r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}"#.to_owned(),
    );
    let started = Instant::now();
    broken.assert_imports(&broken.gateway(is_manifest, vec![busy]), "429");
    // The importer is another process, which pauses in real time.
    assert!(started.elapsed() >= Duration::from_secs(3), "{:?}", started.elapsed());
}

#[test]
#[ignore = "server: docker-registry"]
fn a_corrupted_byte_anywhere_is_detected() {
    let broken = Broken::new();
    let wrong = "the received bytes have sha256:";
    // In the disk, and in the padding of the archive, at which no reader of tars looks.
    for offset in [DISK_BYTES / 2, DISK_BYTES + 5000] {
        broken.assert_refused(&broken.blobs(&[Fault::Corrupt(offset)]), wrong);
    }
    let manifest = broken.gateway(is_manifest, vec![Fault::Corrupt(20)]);
    broken.assert_refused(&manifest, wrong);
    let configuration = broken.gateway(is_blob, vec![Fault::Corrupt(20)]);
    broken.assert_refused(&configuration, wrong);
}

#[test]
#[ignore = "server: docker-registry"]
fn a_layer_that_is_shorter_than_the_manifest_says_is_refused() {
    let broken = Broken::new();
    let text = format!("the registry announces {} bytes, the manifest says", DISK_BYTES / 2);
    broken.assert_refused(&broken.blobs(&[Fault::Short(DISK_BYTES / 2)]), &text);
}

#[test]
#[ignore = "server: docker-registry"]
fn a_token_that_expires_in_the_middle_is_renewed() {
    let issuer = TokenIssuer::new();
    let service = Origin::start(Script::new(issuer.grant("a"))).or_fail("a token service");
    let realm = service.url("/token");
    let broken = Broken::with(Setup { auth: Auth::Token(&issuer, &realm), ..Setup::default() });
    let challenge = format!("Bearer realm=\"{realm}\",service=\"x\",error=\"invalid_token\"");
    let expired = Fault::Status(401, vec![("WWW-Authenticate", challenge)]);
    let gateway = broken.blobs(&[Fault::Cut(DISK_BYTES / 2), expired]);
    broken.assert_imports(&gateway, "expired");
    assert_eq!(service.requests().len(), 2, "{:?}", service.requests());
    let sent: u64 = gateway.requests().iter().map(|request| request.body_bytes).sum();
    assert!(sent < DISK_BYTES * 101 / 100, "{sent} bytes were sent");
}

#[test]
#[ignore = "server: docker-registry"]
fn the_error_of_a_registry_is_escaped_and_stays_on_one_line() {
    let broken = Broken::new();
    let says = "no\u{202e}\u{2028}\n\u{1b}[2Jcdi-importer: done\u{200b}";
    let body = serde_json::json!({"errors": [{"code": "DENIED", "message": says}]}).to_string();
    let gateway = broken.gateway(is_manifest, vec![Fault::Answer(403, Vec::new(), body)]);
    let program = broken.scene.import(&behind(&gateway, "a"));
    let shown = r"DENIED: no\u{202e} \u{1b}[2Jcdi-importer: done\u{200b}";
    let finished = broken.scene.assert_refused(program, SOURCE_FAILED, shown);
    let raw = |c: char| matches!(c, '\u{202e}' | '\u{2028}' | '\u{1b}' | '\u{200b}');
    assert!(!finished.stderr.contains(raw), "{:?}", finished.stderr);
}
