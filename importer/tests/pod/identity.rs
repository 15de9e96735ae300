//! The identity that the pod uses: that of the DataVolume or one mounted into the pod, no other.

use std::net::SocketAddr;
use std::path::PathBuf;

use testkit::certs::Authority;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::forward_proxy::ForwardProxy;
use testkit::gateway::{Fault, Gateway, Plan};
use testkit::objects::service_account;
use testkit::origin::{Origin, Recorded, Script};
use testkit::syscalls;

use super::pod::{MIB, Pod, SUCCESS, write};

/// Part of every identity that the pod must not use. No server may ever see it.
const BORROWED: &str = "borrowed";

/// A server in place of all services of a platform that hand out identities.
struct Platform {
    server: Origin,
    folder: tempfile::TempDir,
}

impl Platform {
    fn start() -> Self {
        let document = format!(
            "{{\"AccessKeyId\": \"{BORROWED}\", \"SecretAccessKey\": \"{BORROWED}\", \"Token\": \"{BORROWED}\", \
              \"Expiration\": \"2099-01-01T00:00:00Z\", \"access_token\": \"{BORROWED}\", \"expires_in\": 3600}}"
        );
        let folder = tempfile::tempdir().or_fail("a folder");
        write(&folder.path().join("token"), BORROWED);
        Self { server: Origin::start(Script::new(document)).or_fail("a platform"), folder }
    }

    fn token(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    /// Sets the variables by which libraries find an identity. All of them lead to this server.
    fn lend(&self, pod: &mut Pod) {
        let (url, address) = (self.server.url(""), self.server.address().to_string());
        let token = self.token().display().to_string();
        for (name, value) in [
            ("AWS_ACCESS_KEY_ID", BORROWED),
            ("AWS_SECRET_ACCESS_KEY", BORROWED),
            ("AWS_SESSION_TOKEN", BORROWED),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", &token),
            ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/node"),
            ("AWS_ENDPOINT_URL_STS", &url),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &format!("{url}/v1/credentials")),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &token),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url),
            ("GCE_METADATA_HOST", &address),
            ("GCE_METADATA_ROOT", &address),
            ("GCE_METADATA_IP", &address),
        ] {
            pod.set(name, value);
        }
    }
}

/// Runs a pod that must be refused. Returns its message, and connections other than `expected`.
fn refused(pod: &Pod, expected: &[SocketAddr]) -> (String, Vec<String>) {
    let log = pod.path("connections");
    let finished = syscalls::watched_connecting(pod.program(), &log).start().wait();
    assert_eq!(finished.code(), 1, "{}", finished.stderr);
    let metrics: SocketAddr = pod.metrics.parse().or_fail("an address");
    let expected = [expected, &[metrics]].concat();
    (pod.message().or_fail("a message"), syscalls::strangers(&log, &expected))
}

#[track_caller]
fn assert_nothing_borrowed(requests: &[Recorded], case: &str) {
    assert!(!requests.is_empty(), "{case}: there was no request");
    for Recorded { request, .. } in requests {
        let text = format!("{request:?}");
        assert!(!text.contains(BORROWED), "{case}: {text}");
        assert_eq!(request.header("x-amz-security-token"), None, "{case}");
    }
}

/// Keys from the Secret of the DataVolume, or none.
const KEYS: [&[(&str, &str)]; 2] =
    [&[], &[("IMPORTER_ACCESS_KEY_ID", "givenkey"), ("IMPORTER_SECRET_KEY", "givensecret")]];

#[test]
#[ignore = "tools: strace"]
fn a_pod_that_a_store_refuses_asks_no_service_for_an_identity() {
    for status in [401, 403] {
        for keys in KEYS {
            for with_variables in [false, true] {
                let case = format!("{status}, {keys:?}, variables: {with_variables}");
                let platform = Platform::start();
                let store = Origin::start(Script {
                    expires: [("/bucket/disk".to_owned(), (0, status))].into(),
                    ..Script::new("")
                })
                .or_fail("a store");
                let mut pod = Pod::new(&[
                    ("IMPORTER_SOURCE", "s3"),
                    ("IMPORTER_ENDPOINT", &store.url("/bucket/disk")),
                ]);
                keys.iter().for_each(|(name, value)| pod.set(name, value));
                if with_variables {
                    platform.lend(&mut pod);
                }
                let (message, strangers) = refused(&pod, &[store.address()]);
                assert!(strangers.is_empty(), "{case}: {strangers:#?}");
                assert!(platform.server.requests().is_empty(), "{case}");
                assert_nothing_borrowed(&store.requests(), &case);
                let expected = "Unable to connect to s3 data source: could not get s3 object: \"bucket/disk\": ";
                assert!(message.starts_with(expected), "{case}: {message}");
                let is_told = message.contains("put them into the Secret of the DataVolume");
                assert_eq!(is_told, keys.is_empty(), "{case}: {message}");
            }
        }
    }
}

/// A cloud: one server that answers for every host that is requested through the proxy.
struct Clouds {
    object: Origin,
    gateway: Gateway,
    proxy: ForwardProxy,
    authority: Authority,
}

impl Clouds {
    /// Requests that `plan` does not answer get `object`, whatever their path.
    fn start(hosts: &[&str], object: Script, plan: Plan) -> Self {
        let authority = Authority::new().or_fail("an authority");
        let object = Origin::start(object).or_fail("an object");
        let tls = authority.server_config_for(hosts).or_fail("TLS");
        let gateway = Gateway::start_tls(object.address(), plan, tls).or_fail("a gateway");
        let proxy = ForwardProxy::start(gateway.address()).or_fail("a proxy");
        Self { object, gateway, proxy, authority }
    }

    /// A pod that reaches this cloud and trusts its certificates.
    fn pod(&self, env: &[(&str, &str)]) -> Pod {
        let mut pod = Pod::new(env);
        write(&pod.path("certs/ca.crt"), &self.authority.pem());
        pod.set("IMPORTER_CERT_DIR", pod.path("certs").display());
        pod.set("HTTPS_PROXY", format!("http://{}", self.proxy.address()));
        pod
    }

    fn hosts(&self) -> Vec<String> {
        let requests = self.gateway.requests();
        let host =
            |recorded: &Recorded| recorded.request.header("host").unwrap_or_default().to_owned();
        requests.iter().map(host).collect()
    }
}

#[test]
#[ignore = "tools: strace"]
fn a_pod_that_a_cloud_refuses_asks_no_metadata_service() {
    for (source, host, endpoint) in [
        ("gcs", "storage.googleapis.com", "gs://bucket/disk"),
        ("gcs", "storage.googleapis.com", "https://storage.googleapis.com/bucket/disk"),
        ("s3", "s3.eu-west-1.amazonaws.com", "https://s3.eu-west-1.amazonaws.com/bucket/disk"),
    ] {
        for status in [401, 403] {
            let case = format!("{endpoint}, {status}");
            let refuse = Fault::Status(status, Vec::new());
            let clouds = Clouds::start(&[host], Script::new(""), Plan::of(vec![refuse; 9]));
            let platform = Platform::start();
            let mut pod =
                clouds.pod(&[("IMPORTER_SOURCE", source), ("IMPORTER_ENDPOINT", endpoint)]);
            platform.lend(&mut pod);
            // A pod may use a web identity at Amazon.
            pod.unset("AWS_WEB_IDENTITY_TOKEN_FILE");
            // A login of a user, at the place where Google's libraries look for one.
            let login = "home/.config/gcloud/application_default_credentials.json";
            write(&pod.path(login), &authorized_user());
            pod.set("HOME", pod.path("home").display());
            let (message, strangers) = refused(&pod, &[clouds.proxy.address()]);
            assert!(strangers.is_empty(), "{case}: {strangers:#?}");
            assert!(platform.server.requests().is_empty(), "{case}");
            assert_nothing_borrowed(&clouds.gateway.requests(), &case);
            assert_eq!(clouds.hosts(), [host], "{case}: asked once, and nobody else");
            assert!(message.contains(&status.to_string()), "{case}: {message}");
        }
    }
}

#[test]
#[ignore = "tools: strace"]
fn no_endpoint_leads_the_pod_to_a_metadata_service() {
    let metadata = "http://169.254.169.254/latest/meta-data/iam/security-credentials/node";
    let leading = Origin::start(Script {
        redirects: [
            ("/disk".to_owned(), vec![metadata.to_owned()]),
            ("/nat64".to_owned(), vec!["http://[64:ff9b::a9fe:a9fe]/".to_owned()]),
        ]
        .into(),
        ..Script::new("")
    })
    .or_fail("a server");
    for (source, endpoint) in [
        ("http", metadata),
        ("http", "http://[fd00:ec2::254]/latest/meta-data"),
        ("http", "http://metadata.google.internal/computeMetadata/v1/"),
        ("http", "https://2852039166/"),
        ("http", &leading.url("/disk")),
        ("http", &leading.url("/nat64")),
        ("http", "http://[64:ff9b::a9fe:a9fe]/latest/meta-data"),
        ("http", "http://[64:ff9b:1::a9fe:a9fe]/latest/meta-data"),
        ("http", "http://[2002:a9fe:a9fe::]/latest/meta-data"),
        ("s3", "http://[64:ff9b::a9fe:a9fe]/bucket/key"),
        ("registry", "docker://[64:ff9b::a9fe:a9fe]/a/b"),
        ("s3", "http://169.254.169.254/bucket/key"),
        ("gcs", "http://169.254.169.254/bucket/key"),
        ("registry", "docker://169.254.169.254/a/b"),
        ("imageio", "http://169.254.169.254/ovirt-engine/api"),
        ("vddk", "http://169.254.169.254/"),
    ] {
        let pod = Pod::new(&[
            ("IMPORTER_SOURCE", source),
            ("IMPORTER_ENDPOINT", endpoint),
            ("IMPORTER_EXTRA_HEADER_0", "Metadata-Flavor: Google"),
            ("IMPORTER_ACCESS_KEY_ID", "user"),
            ("IMPORTER_SECRET_KEY", "secret"),
            ("IMPORTER_DISK_ID", "1"),
            ("IMPORTER_UUID", "1"),
            ("IMPORTER_BACKING_FILE", "a"),
            ("INSECURE_TLS", "true"),
        ]);
        let (message, strangers) = refused(&pod, &[leading.address()]);
        assert!(strangers.is_empty(), "{source} {endpoint}: {strangers:#?}");
        assert!(
            message.contains("the metadata service of this machine"),
            "{source} {endpoint}: {message}"
        );
    }
}

#[test]
#[ignore = "root: rights of root"]
fn no_name_leads_the_pod_to_a_metadata_service() {
    for address in ["169.254.169.254", "64:ff9b::a9fe:a9fe", "fd00:c1::a9fe:a9fe"] {
        let pod = Pod::http("http://images.example/disk", &[]);
        let hosts = pod.path("hosts");
        write(&hosts, &format!("127.0.0.1 localhost\n{address} images.example\n"));
        let script = format!("mount --bind {} /etc/hosts && exec \"$@\"", hosts.display());
        let finished =
            pod.program().under("unshare", ["--mount", "sh", "-c", &script, "sh"]).start().wait();
        finished.assert_failure(1, "images.example is the metadata service of this machine");
    }
}

fn authorized_user() -> String {
    format!(
        "{{\"type\": \"authorized_user\", \"client_id\": \"{BORROWED}\", \"client_secret\": \"{BORROWED}\", \
          \"refresh_token\": \"{BORROWED}\"}}"
    )
}

const AMAZON: [&str; 2] = ["s3.eu-west-1.amazonaws.com", "sts.eu-west-1.amazonaws.com"];

fn exchange() -> Plan {
    let keys = "<AccessKeyId>EXCHANGED</AccessKeyId><SecretAccessKey>s</SecretAccessKey>\
                <SessionToken>session</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>";
    let result = format!(
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>{keys}</Credentials>\
         </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
    );
    Plan {
        matching: |request| request.header("host").is_some_and(|host| host.starts_with("sts.")),
        ..Plan::of(vec![Fault::Answer(200, Vec::new(), result)])
    }
}

fn mount_web_identity(pod: &mut Pod, platform: &Platform) {
    pod.set("AWS_WEB_IDENTITY_TOKEN_FILE", platform.token().display());
    pod.set("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/importer");
}

/// Mounts the key file of a service account, and names it in a variable.
fn mount_account(pod: &mut Pod, path: &str) {
    write(&pod.path(path), &service_account());
    pod.set("GOOGLE_APPLICATION_CREDENTIALS", pod.path(path).display());
}

#[test]
fn a_mounted_identity_is_used_at_the_clouds_own_hosts() {
    let content = disk::content(1, MIB);
    let clouds = Clouds::start(&AMAZON, Script::new(content.clone()), exchange());
    let platform = Platform::start();
    let endpoint = "https://s3.eu-west-1.amazonaws.com/bucket/disk";
    let mut pod = clouds.pod(&[("IMPORTER_SOURCE", "s3"), ("IMPORTER_ENDPOINT", endpoint)]);
    mount_web_identity(&mut pod, &platform);
    pod.assert_succeeds_with(SUCCESS);
    assert_eq!(std::fs::read(pod.disk()).ok(), Some(content));
    let signed = clouds.object.requests();
    let header = |name| {
        signed.first().or_fail("a request").request.header(name).unwrap_or_default().to_owned()
    };
    assert!(header("authorization").contains("Credential=EXCHANGED/"), "{signed:?}");
    assert_eq!(header("x-amz-security-token"), "session");
    let asked = clouds.gateway.requests();
    assert!(asked[0].request.target.contains("WebIdentityToken=borrowed"), "{asked:?}");

    let google = Clouds::start(
        &["storage.googleapis.com"],
        Script::new(disk::content(1, MIB)),
        Plan::default(),
    );
    let mut pod =
        google.pod(&[("IMPORTER_SOURCE", "gcs"), ("IMPORTER_ENDPOINT", "gs://bucket/disk")]);
    mount_account(&mut pod, "var/run/identity.json");
    pod.assert_succeeds_with(SUCCESS);
    let bearer = google.object.requests()[0].request.header("authorization").map(str::to_owned);
    assert!(
        bearer.or_fail("a token").starts_with("Bearer ey"),
        "not a token of the mounted account"
    );
}

#[test]
#[ignore = "tools: strace"]
fn a_mounted_identity_is_not_sent_to_other_hosts() {
    let platform = Platform::start();
    // A foreign host, the cloud's own host without verification, and a foreign token service.
    let stranger = "https://s3.eu-west-1.amazonaws.com.example/bucket/disk";
    let own = "https://s3.eu-west-1.amazonaws.com/bucket/disk";
    let sts = ("AWS_ENDPOINT_URL_STS", "https://sts.eu-west-1.amazonaws.com.example");
    for (endpoint, more, is_asked) in [
        (stranger, ("INSECURE_TLS", "false"), true),
        (own, ("INSECURE_TLS", "true"), true),
        (own, sts, false),
    ] {
        let hosts = [AMAZON.as_slice(), &["s3.eu-west-1.amazonaws.com.example"]].concat();
        let refuse = Fault::Status(403, Vec::new());
        let clouds = Clouds::start(&hosts, Script::new(""), Plan::of(vec![refuse; 9]));
        let mut pod =
            clouds.pod(&[("IMPORTER_SOURCE", "s3"), ("IMPORTER_ENDPOINT", endpoint), more]);
        mount_web_identity(&mut pod, &platform);
        let (message, strangers) = refused(&pod, &[clouds.proxy.address()]);
        assert!(strangers.is_empty(), "{endpoint} {more:?}: {strangers:#?}");
        let asked = clouds.gateway.requests();
        assert_eq!(asked.is_empty(), !is_asked, "{endpoint} {more:?}: {asked:?} {message}");
        if is_asked {
            assert_nothing_borrowed(&asked, endpoint);
        }
        let reason = if is_asked { "was accessed without keys" } else { "is none of them" };
        assert!(message.contains(reason), "{endpoint} {more:?}: {message}");
    }
    let hosts = ["storage.googleapis.com.example"];
    let clouds = Clouds::start(&hosts, Script::new(disk::content(1, MIB)), Plan::default());
    let endpoint = "https://storage.googleapis.com.example/bucket/disk";
    let mut pod = clouds.pod(&[("IMPORTER_SOURCE", "gcs"), ("IMPORTER_ENDPOINT", endpoint)]);
    mount_account(&mut pod, "var/run/identity.json");
    pod.assert_succeeds_with(SUCCESS);
    assert_eq!(clouds.object.requests()[0].request.header("authorization"), None);

    // Credentials of the DataVolume are sent to the endpoint that it names.
    mount_account(&mut pod, "google/credentials.json");
    pod.assert_succeeds_with(SUCCESS);
    let requests = clouds.object.requests();
    assert!(requests.last().or_fail("a request").request.header("authorization").is_some());
}
