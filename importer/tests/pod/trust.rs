//! Certificates that a cluster mounts into all pods: additional authorities, and one for the metrics.

use std::time::{Duration, Instant};

use testkit::certs::{Authority, KeyKind};
use testkit::disk;
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::oci::{Compression, Image};
use testkit::origin::{Origin, Script};
use testkit::process::Running;

use super::pod::{MIB, Pod, SUCCESS, serve, write};

/// Mounts `authority` as the ConfigMap `trustedCA` of CDI's configuration is mounted.
fn trust(pod: &Pod, authority: &Authority) {
    let folder = pod.path("trustedcacerts");
    write(&folder.join("..data/a bundle"), &format!("# ours\n{}", authority.pem()));
    std::os::unix::fs::symlink("..data/a bundle", folder.join("a bundle")).or_fail("a link");
    write(
        &folder.join("0-broken.crt"),
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
}

#[test]
#[ignore = "server: docker-registry"]
fn an_authority_of_the_whole_cluster_is_trusted_beside_the_others() {
    let [cluster, own] = [0, 1].map(|_| Authority::new().or_fail("an authority"));
    let content = disk::content(1, MIB);
    let registry = DockerRegistry::start_with(
        Setup { authority: Some(&cluster), ..Setup::default() },
        &[("a:1", &[Image::of_disk(&content, Compression::Gzip)])],
    );
    let [first, second] = [&cluster, &own].map(|authority| {
        let tls = authority.server_config().or_fail("TLS");
        Origin::start_tls(Script::new(content.clone()), tls).or_fail("an origin")
    });
    for (source, endpoint) in [
        ("http", first.url("/disk")),
        ("http", second.url("/disk")),
        ("s3", first.url("/bucket/disk")),
        ("gcs", first.url("/bucket/disk")),
        ("registry", registry.reference("a:1")),
    ] {
        let env = [
            ("IMPORTER_SOURCE", source),
            ("IMPORTER_ENDPOINT", &endpoint),
            ("IMPORTER_ACCESS_KEY_ID", if source == "s3" { "key" } else { "" }),
            ("IMPORTER_SECRET_KEY", if source == "s3" { "secret" } else { "" }),
        ];
        for is_mounted in [true, false] {
            let mut pod = Pod::new(&env);
            let certs = pod.path("certs");
            write(&certs.join("ca.crt"), &own.pem());
            pod.env.push(("IMPORTER_CERT_DIR".to_owned(), certs.display().to_string()));
            if is_mounted {
                trust(&pod, &cluster);
            }
            if is_mounted || endpoint == second.url("/disk") {
                pod.assert_succeeds_with(SUCCESS);
                assert_eq!(std::fs::read(pod.disk()).ok(), Some(content.clone()), "{endpoint}");
            } else {
                pod.run().assert_failure(1, "certificate");
            }
        }
    }
}

/// Waits for metrics of a running pod over TLS with `config`; `None` if there are none, or they are somebody else's.
fn scrape(pod: &Pod, config: rustls::ClientConfig) -> Option<String> {
    let client = reqwest::Client::builder().no_proxy().tls_backend_preconfigured(config).build();
    let client = client.or_fail("a client");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().or_fail("a runtime");
    let url = format!("https://{}/metrics", pod.metrics);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(3) {
        let answer =
            runtime.block_on(async { client.get(&url).send().await.ok()?.text().await.ok() });
        if answer.is_some() {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    None
}

/// A slow import with these files as the certificate of its metrics.
fn start(certificate: Option<(&str, &str)>) -> (Pod, Running, Origin) {
    let origin = serve(Script { rate: Some(400 << 10), ..Script::new(disk::content(1, 4 * MIB)) });
    let pod = Pod::http(&origin.url("/disk"), &[]);
    if let Some((certificate, key)) = certificate {
        write(&pod.path("etc/prometheus-certs/tls.crt"), certificate);
        write(&pod.path("etc/prometheus-certs/tls.key"), key);
    }
    let running = pod.program().start();
    (pod, running, origin)
}

#[test]
#[ignore = "slow: waits 52 s"]
fn metrics_have_the_certificate_that_is_mounted_for_them() {
    let authority = Authority::new().or_fail("an authority");
    let server = authority.server(KeyKind::Rsa).or_fail("a server");
    let other = authority.server(KeyKind::Rsa).or_fail("another");
    let ours = || rustls::ClientConfig::clone(&authority.client_config().or_fail("TLS"));
    let anyone = || https::tls::insecure_client_config().or_fail("TLS");
    let (certificate, key, foreign) = (&server.certificate_pem, server.key_pem(), other.key_pem());
    for (files, is_known) in [
        (Some((certificate.as_str(), key.as_str())), true),
        (None, false),
        (Some(("", "")), false),
        (Some((certificate.as_str(), "no key")), false),
        (Some((certificate.as_str(), foreign.as_str())), false),
    ] {
        let (pod, running, _origin) = start(files);
        assert!(scrape(&pod, anyone()).is_some(), "the endpoint is there: {files:?}");
        assert_eq!(scrape(&pod, ours()).is_some(), is_known, "{files:?}");
        let finished = running.wait();
        finished.assert_success("import");
        let is_warned = finished
            .stderr
            .lines()
            .any(|line| line.starts_with('W') && line.contains("prometheus-certs"));
        assert_eq!(is_warned, files.is_some() && !is_known, "{}", finished.stderr);
    }
}
