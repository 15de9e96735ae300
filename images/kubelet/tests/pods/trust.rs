//! The certificates that an import pod trusts: those that CDI mounts, under any file name, and no
//! others.

use std::fs;

use kubelet::controller::{CERTIFICATES, CLUSTER_CERTIFICATES, Import, PROXY_CERTIFICATES};
use kubelet::volumes::Claim;
use testkit::certs::Authority;
use testkit::fail::OrFail;
use testkit::oci;

use super::scene::{CLAIM_BYTES, SERVER, Scene, url};

#[test]
#[ignore = "server: docker-registry, nginx"]
fn servers_are_trusted_through_their_authority_wherever_it_is_mounted() {
    let (mut scene, image) = Scene::with_image();
    let stranger = Authority::new().or_fail("another authority");
    let nginx = scene.serve(true, "root .;");
    let qcow2 = fs::read(&image.qcow2).or_fail("the image");
    let container_disk = oci::Image::of_disk(&qcow2, oci::Compression::Gzip);
    let registry = scene.serve_images(true, &[("disk:1", container_disk)]);
    scene.objects.extend([
        ("odd", vec![("Its.odd_name-1", scene.authority.pem())]),
        ("bundle", vec![("bundle", scene.authority.pem())]),
        ("stranger", vec![("ca.crt", stranger.pem())]),
    ]);
    let http = ("http", url("https", nginx.address(), "image.qcow2"));
    let docker = ("registry", url("docker", registry.address(), "disk:1"));
    for ((source, url), mounts, is_trusted) in [
        (&http, &[(CERTIFICATES, "odd")][..], true),
        (&http, &[(PROXY_CERTIFICATES, "ca")], true),
        (&http, &[(CLUSTER_CERTIFICATES, "bundle")], true),
        (&http, &[(CERTIFICATES, "stranger")], false),
        (&http, &[], false),
        (&docker, &[(CERTIFICATES, "ca")], true),
        (&docker, &[(PROXY_CERTIFICATES, "odd")], true),
        (&docker, &[(CLUSTER_CERTIFICATES, "ca")], true),
        (&docker, &[(CERTIFICATES, "stranger")], false),
        (&docker, &[], false),
    ] {
        let env = &[("IMPORTER_SOURCE", *source), ("IMPORTER_ENDPOINT", url)];
        let claim = Claim::filesystem(CLAIM_BYTES);
        let import = Import { env, mounts, hosts: &[SERVER], ..Import::default() };
        let ended = scene.import(&claim, &import);
        if is_trusted {
            scene.assert_imported(&claim, &ended, "image.raw", false, &[]);
        } else {
            assert_eq!(ended.code, 1, "{source}, {mounts:?}: {}", ended.log);
            assert!(ended.message.contains("certificate"), "{source}: {}", ended.message);
            assert_eq!(claim.names(), [""; 0], "{source}, {mounts:?}");
        }
    }
}
