//! Certificates that a cluster mounts into all pods: additional authorities, and one for the
//! metrics.

use rustix::process::Signal;
use testkit::certs::{Authority, KeyKind};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::layout_registry::LayoutRegistry;
use testkit::oci::{Compression, Image, write_layout};
use testkit::origin::{Fault, Origin, Script};
use testkit::wait;

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
fn an_authority_of_the_whole_cluster_is_trusted_beside_the_others() {
    let [cluster, own] = [0, 1].map(|_| Authority::new().or_fail("an authority"));
    let content = disk::content(1, MIB);
    let layout = tempfile::tempdir().or_fail("a folder");
    write_layout(layout.path(), &[Image::of_disk(&content, Compression::Gzip)]);
    let tls = |authority: &Authority| authority.server_config().or_fail("TLS");
    let registry = LayoutRegistry::start_tls(layout.path(), tls(&cluster));
    let [first, second] = [&cluster, &own].map(|authority| {
        Origin::start_tls(Script::new(content.clone()), tls(authority)).or_fail("an origin")
    });
    for (source, endpoint) in [
        ("http", first.url("/disk")),
        ("http", second.url("/disk")),
        ("s3", first.url("/bucket/disk")),
        ("gcs", first.url("/bucket/disk")),
        ("registry", registry.reference()),
    ] {
        let mut pod = Pod::new(&[("IMPORTER_SOURCE", source), ("IMPORTER_ENDPOINT", &endpoint)]);
        if source == "s3" {
            pod.set("IMPORTER_ACCESS_KEY_ID", "key");
            pod.set("IMPORTER_SECRET_KEY", "secret");
        }
        write(&pod.path("certs/ca.crt"), &own.pem());
        pod.set("IMPORTER_CERT_DIR", pod.path("certs").display());
        if endpoint != second.url("/disk") {
            pod.run().assert_failure(1, "certificate");
        }
        trust(&pod, &cluster);
        pod.assert_succeeds_with(SUCCESS);
        assert_eq!(std::fs::read(pod.disk()).ok().as_ref(), Some(&content), "{endpoint}");
    }
}

/// Scrapes the metrics of a running pod over TLS with `config`. `None` if they are somebody else's.
fn scrape(pod: &Pod, config: rustls::ClientConfig) -> Option<String> {
    let client = reqwest::Client::builder().no_proxy().tls_backend_preconfigured(config).build();
    let client = client.or_fail("a client");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().or_fail("a runtime");
    let url = format!("https://{}/metrics", pod.metrics);
    runtime.block_on(async { client.get(&url).send().await.ok()?.text().await.ok() })
}

#[test]
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
        // A source without an end, so that the pod runs until it is stopped.
        let stalls = Script { faults: vec![Fault::StallAt(MIB)], ..Script::new(vec![1; 2 << 20]) };
        let origin = serve(stalls);
        let pod = Pod::http(&origin.url("/disk"), &[]);
        if let Some((certificate, key)) = files {
            write(&pod.path("etc/prometheus-certs/tls.crt"), certificate);
            write(&pod.path("etc/prometheus-certs/tls.key"), key);
        }
        let running = pod.program().start();
        wait::until(|| "no metrics", || scrape(&pod, anyone()).is_some());
        assert_eq!(scrape(&pod, ours()).is_some(), is_known, "{files:?}");
        running.signal(Signal::TERM);
        let log = running.wait().stderr;
        let is_warning = |line: &str| line.starts_with('W') && line.contains("prometheus-certs");
        assert_eq!(log.lines().any(is_warning), files.is_some() && !is_known, "{log}");
    }
}
