//! Annotations that the poller writes to the DataImportCron.

use serde_json::json;
use testkit::docker_registry::{DockerRegistry, Setup};

use super::scene::{DIGEST, Scene, digest, image};

#[test]
#[ignore = "server: Kubernetes, docker-registry"]
fn a_new_digest_is_recorded_and_a_known_one_only_updates_the_time() {
    let scene = Scene::new("news");
    let registry = DockerRegistry::start_with(Setup::default(), &[("a/b:latest", &[image(1)])]);
    let url = registry.reference("a/b:latest");
    let first = digest(&registry, "a/b:latest");
    let found = scene.assert_finds(scene.insecure(&url), &first, "first");
    assert!(
        found.stdout.contains("Digest updated: DataImportCron default/news\n"),
        "{}",
        found.stdout
    );

    registry.push("a/b:latest", &[image(2)], &[]);
    let second = digest(&registry, "a/b:latest");
    assert_ne!(first, second);
    scene.assert_finds(scene.insecure(&url), &second, "another image");

    let known = json!({
        "cdi.kubevirt.io/storage.import.sourceDesiredDigest": second,
        "cdi.kubevirt.io/storage.import.lastCronTime": "2001-01-01T00:00:00Z",
    });
    let scene = Scene::annotated("known", Some(&known));
    let again = scene.assert_finds(scene.insecure(&url), &second, "again");
    assert!(again.stdout.contains("No digest update"), "{}", again.stdout);
}

#[test]
#[ignore = "server: Kubernetes, docker-registry"]
fn an_index_has_its_own_digest_and_other_annotations_stay() {
    let annotations = json!({
        "mine": "stays",
        "cdi.kubevirt.io/storage.import.sourceDesiredDigest": "sha256:old",
    });
    let scene = Scene::annotated("index", Some(&annotations));
    let images =
        ["amd64", "s390x"].map(|architecture| testkit::oci::Image { architecture, ..image(1) });
    let registry = DockerRegistry::start_with(Setup::default(), &[("a/b:1", &images)]);
    registry.push("a/b:list", &images, &["--all", "--format", "v2s2"]);
    let [list, index] = ["a/b:list", "a/b:1"].map(|name| digest(&registry, name));
    for (name, digest) in [("a/b:list", &list), ("a/b:1", &index)] {
        scene.assert_finds(scene.insecure(&registry.reference(name)), digest, name);
    }
    let all = super::scene::cluster()
        .get("/apis/cdi.kubevirt.io/v1beta1/namespaces/default/dataimportcrons/index");
    assert_eq!(all["metadata"]["annotations"]["mine"], "stays", "{all}");

    let pinned = registry.reference(&format!("a/b@{index}"));
    scene.assert_finds(scene.insecure(&pinned), &index, "by digest");
}

#[test]
#[ignore = "server: Kubernetes, docker-registry"]
fn missing_images_and_objects_are_reported() {
    let scene = Scene::new("absent");
    let registry = DockerRegistry::start_with(Setup::default(), &[("a/b:1", &[image(1)])]);
    scene.assert_refused(
        scene.insecure(&registry.reference("a/b:2")),
        "404 Not Found: MANIFEST_UNKNOWN",
    );
    let url = registry.reference("a/b:1");
    scene.assert_refused(
        scene.insecure(&url).args(["-cron", "other"]),
        "Failed getting DataImportCron, cronNamespace default cronName other: ",
    );
    scene.assert_refused(
        scene.insecure(&url).args(["-cron", "../x"]),
        "\"../x\" cannot be the name of an object",
    );
    let stranger = super::scene::cluster().kubeconfig_for("nobody's token");
    let unknown = scene.insecure(&url).arg("-kubeconfig").arg(stranger);
    scene.assert_refused(
        unknown,
        "Failed getting DataImportCron, cronNamespace default cronName absent: Unauthorized",
    );
    scene.assert_refused(scene.insecure("docker:a"), "Failed getting the digest of docker:a: ");
    assert_eq!(scene.annotation(DIGEST), None);
}
