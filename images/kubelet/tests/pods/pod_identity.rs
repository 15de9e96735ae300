//! EKS Pod Identity: the platform gives the pods of a service account a token and the address of a
//! service of the node.

use std::net::{Ipv4Addr, SocketAddrV4};

use kubelet::controller::{Import, MountPoint};
use kubelet::network::NODE;
use kubelet::state::Terminated;
use kubelet::volumes::Claim;
use serde_json::json;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::origin::{Origin, Script};

use super::scene::{CLAIM_BYTES, MIB, Scene, TRUSTED};

/// Where the platform's service listens, and the URL by which pods are told of it.
const SERVICE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(169, 254, 170, 23), 80);
const SERVICE_URL: &str = "http://169.254.170.23/v1/credentials";

const AMAZON: &str = "s3.eu-west-1.amazonaws.com";
const STRANGER: &str = "s3.eu-west-1.amazonaws.com.example";
const TOKEN: &str = "token-of-the-account";
const MOUNT: MountPoint = ("/var/run/secrets/pods.eks.amazonaws.com/serviceaccount", None);

/// A node at Amazon: a store, and the service that gives credentials to pods.
struct Node {
    scene: Scene,
    store: Origin,
    service: Origin,
}

impl Node {
    fn start() -> Self {
        let mut scene = Scene::new();
        let content = disk::content(1, MIB);
        scene.write("disk", &content);
        scene.objects.push(("token", vec![("eks-pod-identity-token", TOKEN.to_owned())]));
        let tls = scene.authority.server_config_for(&[AMAZON, STRANGER]).or_fail("TLS");
        let store = Origin::start_tls(Script::new(content), tls).or_fail("a store");
        let keys = json!({
            "AccessKeyId": "ASSIGNED", "SecretAccessKey": "secret", "Token": "session", "Expiration": "2099-01-01T00:00:00Z",
        });
        let service = Origin::start(Script::new(keys.to_string())).or_fail("a service");
        scene.network.open(store.address());
        scene.network.open_service(SERVICE, service.address());
        Self { scene, store, service }
    }

    /// Imports from `host` with what the platform's webhook adds to pods, and `variables` on top.
    fn import(&self, claim: &Claim, host: &str, variables: &[(&str, &str)]) -> Terminated {
        let url = format!("https://{host}:{}/bucket/disk", self.store.address().port());
        let file = format!("{}/eks-pod-identity-token", MOUNT.0);
        let env = [
            ("IMPORTER_SOURCE", "s3"),
            ("IMPORTER_ENDPOINT", &url),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", SERVICE_URL),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &file),
        ];
        let env = &[&env, variables].concat();
        let mounts = &[TRUSTED[0], (MOUNT, "token")];
        let import = Import { env, mounts, hosts: &[(host, NODE)], ..Import::default() };
        self.scene.import(claim, &import)
    }
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn the_identity_of_the_service_account_opens_amazons_store() {
    let node = Node::start();
    let claim = Claim::filesystem(CLAIM_BYTES);
    let ended = node.import(&claim, AMAZON, &[]);
    node.scene.assert_imported(&claim, &ended, "disk", false, &[]);
    for secret in [TOKEN, "session", "ASSIGNED"] {
        assert!(!ended.log.contains(secret), "{secret}: {}", ended.log);
    }
    let [asked] = &node.service.requests()[..] else { panic!("not one request") };
    assert_eq!(asked.request.path(), "/v1/credentials");
    assert_eq!(asked.request.header("authorization"), Some(TOKEN));
    let signed = &node.store.requests()[0].request;
    let authorization = signed.header("authorization").unwrap_or_default();
    assert!(authorization.contains("Credential=ASSIGNED/"), "{authorization}");
    assert_eq!(signed.header("x-amz-security-token"), Some("session"));
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn the_token_goes_to_no_other_address_and_for_no_other_host() {
    let node = Node::start();
    let uri = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    for (host, variables) in [
        (STRANGER, &[][..]),
        (AMAZON, &[("INSECURE_TLS", "true")]),
        (AMAZON, &[(uri, "http://169.254.170.23/v1/credentials?x")]),
        (AMAZON, &[(uri, "http://169.254.170.2/v1/credentials")]),
        (AMAZON, &[("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "")]),
        // Nor does a DataVolume lead there.
        (AMAZON, &[("IMPORTER_SOURCE", "http"), ("IMPORTER_ENDPOINT", SERVICE_URL)]),
    ] {
        let before = node.store.requests().len();
        let ended = node.import(&Claim::filesystem(CLAIM_BYTES), host, variables);
        assert_eq!(node.service.requests().len(), 0, "{host} {variables:?}: {}", ended.log);
        for seen in node.store.requests().iter().skip(before) {
            assert_eq!(seen.request.header("authorization"), None, "{host} {variables:?}");
        }
        if variables.len() == 2 {
            let words = "the metadata service of this machine";
            assert!(ended.code == 1 && ended.message.contains(words), "{}", ended.message);
        }
    }
}
