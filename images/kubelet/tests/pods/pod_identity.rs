//! EKS Pod Identity: the platform gives the pods of a service account a token and the address of a service of the node.

use std::net::{Ipv4Addr, SocketAddrV4};

use k8s_openapi::api::core::v1::Pod;
use kubelet::controller::{self, Import};
use kubelet::network::{NODE, Network};
use kubelet::pod;
use kubelet::state::Terminated;
use kubelet::volumes::{Claim, Objects};
use serde_json::{Value, json};
use testkit::certs::Authority;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::origin::{Origin, Script};

use super::scene::{CLAIM_BYTES, MIB, assert_succeeded, with_claim};

/// Where the platform's service listens, and the URL by which pods are told of it.
const SERVICE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(169, 254, 170, 23), 80);
const SERVICE_URL: &str = "http://169.254.170.23/v1/credentials";

const AMAZON: &str = "s3.eu-west-1.amazonaws.com";
const STRANGER: &str = "s3.eu-west-1.amazonaws.com.example";
const TOKEN: &str = "token-of-the-account";

/// A node at Amazon: a store, and the service that gives credentials to pods.
struct Node {
    network: Network,
    authority: Authority,
    store: Origin,
    service: Origin,
}

impl Node {
    fn start() -> Self {
        let authority = Authority::new().or_fail("an authority");
        let tls = authority.server_config_for(&[AMAZON, STRANGER]).or_fail("TLS");
        let store = Origin::start_tls(Script::new(disk::content(1, MIB)), tls).or_fail("a store");
        let keys = json!({
            "AccessKeyId": "ASSIGNED", "SecretAccessKey": "secret", "Token": "session", "Expiration": "2099-01-01T00:00:00Z",
        });
        let service = Origin::start(Script::new(keys.to_string())).or_fail("a service");
        let network = Network::new();
        network.open(store.address());
        network.open_service(SERVICE, service.address());
        Self { network, authority, store, service }
    }

    /// Imports from `host` with what the platform's webhook adds to pods, and `variables` on top.
    fn import(&self, host: &str, variables: &[(&str, &str)]) -> Terminated {
        let url = format!("https://{host}:{}/bucket/disk", self.store.address().port());
        let folder = "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount";
        let file = format!("{folder}/eks-pod-identity-token");
        let env = [
            ("IMPORTER_SOURCE", "s3"),
            ("IMPORTER_ENDPOINT", &url),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", SERVICE_URL),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &file),
        ];
        let env = [&env[..], variables].concat();
        let import = Import {
            env: &env,
            certificates: Some("ca"),
            hosts: &[(host, NODE)],
            ..Import::default()
        };
        let claim = Claim::filesystem(CLAIM_BYTES);
        let mut pod = json!(controller::importer(&claim, &import));
        let push = |list: &mut Value, item: Value| list.as_array_mut().or_fail("a list").push(item);
        push(
            &mut pod["spec"]["volumes"],
            json!({ "name": "token", "secret": { "secretName": "token" } }),
        );
        push(
            &mut pod["spec"]["containers"][0]["volumeMounts"],
            json!({ "name": "token", "mountPath": folder, "readOnly": true }),
        );
        let pod: Pod = serde_json::from_value(pod).or_fail("a pod");
        let files = [
            ("ca", vec![("ca.crt", self.authority.pem())]),
            ("token", vec![("eks-pod-identity-token", TOKEN.to_owned())]),
        ];
        let objects = Objects { files: files.into(), ..with_claim(&claim) };
        pod::start(&self.network, &pod, &objects).wait("importer")
    }
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn the_identity_of_the_service_account_opens_amazons_store() {
    let node = Node::start();
    let ended = node.import(AMAZON, &[]);
    assert_succeeded(&ended.import(), &ended, "Import Complete");
    for secret in [TOKEN, "session", "ASSIGNED"] {
        assert!(!ended.log.contains(secret), "{secret}: {}", ended.log);
    }
    let asked = node.service.requests();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(
        (asked[0].request.path(), asked[0].request.header("authorization")),
        ("/v1/credentials", Some(TOKEN))
    );
    let signed = node.store.requests();
    let header = |name| {
        signed.first().or_fail("a request").request.header(name).unwrap_or_default().to_owned()
    };
    assert!(header("authorization").contains("Credential=ASSIGNED/"), "{signed:?}");
    assert_eq!(header("x-amz-security-token"), "session");
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
        (AMAZON, &[(uri, "http://169.254.170.23/v2/credentials")]),
        (AMAZON, &[(uri, "http://169.254.170.2/v1/credentials")]),
        (AMAZON, &[("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "")]),
    ] {
        let before = node.store.requests().len();
        let ended = node.import(host, variables);
        assert_eq!(node.service.requests().len(), 0, "{host} {variables:?}: {}", ended.log);
        for seen in node.store.requests().iter().skip(before) {
            assert_eq!(seen.request.header("authorization"), None, "{host} {variables:?}");
        }
    }
    // Nor does a DataVolume lead there.
    let env = [("IMPORTER_SOURCE", "http"), ("IMPORTER_ENDPOINT", SERVICE_URL)];
    let ended = node.import(AMAZON, &env);
    assert_eq!(ended.code, 1, "{}", ended.log);
    assert!(ended.message.contains("the metadata service of this machine"), "{}", ended.message);
    assert_eq!(node.service.requests().len(), 0);
}
