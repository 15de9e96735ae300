//! The certificates that an import pod trusts: those that CDI mounts, under any file name, and no
//! others.

use kubelet::controller::Import;
use kubelet::network::Network;
use kubelet::volumes::Claim;
use testkit::certs::Authority;
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::oci;

use super::scene::{
    CLAIM_BYTES, SERVER, assert_disk, assert_succeeded, disk_image, import, serve, url,
};

/// Where a certificate is mounted.
#[derive(Debug, Clone, Copy)]
enum Mount {
    Certs,
    ProxyCerts,
    Cluster,
}

#[test]
#[ignore = "server: docker-registry, nginx"]
fn servers_are_trusted_through_their_authority_wherever_it_is_mounted() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let network = Network::new();
    let (authority, stranger) =
        (Authority::new().or_fail("an authority"), Authority::new().or_fail("another"));
    let nginx = serve(&network, folder.path(), &authority);
    let qcow2 = std::fs::read(&image.qcow2).or_fail("the image");
    let setup = Setup { authority: Some(&authority), ..Setup::default() };
    let container_disk = oci::Image::of_disk(&qcow2, oci::Compression::Gzip);
    let registry = DockerRegistry::start_with(setup, &[("disk:1", &[container_disk])]);
    network.open(registry.address());
    let http = ("http", url("https", nginx.address(), "image.qcow2"));
    let docker = ("registry", url("docker", registry.address(), "disk:1"));
    for ((source, url), mount, name, signer, is_trusted) in [
        (&http, Mount::Certs, "Its.odd_name-1", Some(&authority), true),
        (&http, Mount::ProxyCerts, "ca.pem", Some(&authority), true),
        (&http, Mount::Cluster, "bundle", Some(&authority), true),
        (&http, Mount::Certs, "ca.crt", Some(&stranger), false),
        (&http, Mount::Certs, "ca.crt", None, false),
        (&docker, Mount::Certs, "ca.pem", Some(&authority), true),
        (&docker, Mount::ProxyCerts, "ca.crt", Some(&authority), true),
        (&docker, Mount::Cluster, "ca.pem", Some(&authority), true),
        (&docker, Mount::Certs, "ca.crt", Some(&stranger), false),
        (&docker, Mount::Certs, "ca.crt", None, false),
    ] {
        let case = format!("{source}, {mount:?}, {name}");
        let map = signer.map(|signer| ("ca", vec![(name, signer.pem())]));
        let mounted = signer.map(|_| "ca");
        let pod = Import {
            env: &[("IMPORTER_SOURCE", source), ("IMPORTER_ENDPOINT", url)],
            certificates: mounted.filter(|_| matches!(mount, Mount::Certs)),
            proxy_certificates: mounted.filter(|_| matches!(mount, Mount::ProxyCerts)),
            cluster_certificates: mounted.filter(|_| matches!(mount, Mount::Cluster)),
            hosts: &[SERVER],
            ..Import::default()
        };
        let claim = Claim::filesystem(CLAIM_BYTES);
        let ended = import(&network, &claim, &pod, map.as_slice());
        if is_trusted {
            assert_succeeded(&ended.import(), &ended, "Import Complete");
            assert_disk(&claim, &image.raw, image.virtual_size);
        } else {
            assert_eq!(ended.code, 1, "{case}: {}", ended.log);
            assert!(ended.message.contains("certificate"), "{case}: {}", ended.message);
            assert_eq!(claim.names(), [""; 0], "{case}");
        }
    }
}
