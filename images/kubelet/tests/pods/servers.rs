//! Servers that are slow, or lose an object.

use kubelet::controller::{Import, OWNER};
use kubelet::volumes::Claim;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Content, Spec};
use testkit::origin::{Fault, Origin, Script};
use testkit::tools;

use super::scene::{CLAIM_BYTES, MIB, SERVER, Scene, http, url};

/// The progress metric of importers (contract §0.7).
const METRIC: &str = "kubevirt_cdi_import_progress_total";

#[test]
#[ignore = "server: nginx"]
fn an_import_reports_progress_to_scrapes() {
    let scene = Scene::new();
    let spec = Spec { virtual_size: 12 * MIB, ..Spec::new(Content::Dense) };
    let image = spec.build(scene.folder.path(), "image");
    let qcow2 = std::fs::read(&image.qcow2).or_fail("the image");
    let gzip = tools::filter("gzip", ["-c", "-1"], &qcow2);
    // The rate is low enough that even the compressed image takes three seconds.
    let rate = gzip.len() / 3;
    scene.write("image.qcow2.gz", gzip);
    let nginx = scene.serve(true, &format!("root .; limit_rate {rate};"));
    for name in ["image.qcow2", "image.qcow2.gz"] {
        let claim = Claim::filesystem(CLAIM_BYTES);
        let url = url("https", nginx.address(), name);
        let env = &[&http(&url)[..], &[("INSECURE_TLS", "true")]].concat();
        let mut running =
            scene.start(&claim, &Import { env, hosts: &[SERVER], ..Import::default() });
        let percent = running.wait_for_progress(METRIC, OWNER, 1.0);
        assert!(percent <= 99.0, "{name}: {percent}");
        let ended = running.wait("importer");
        scene.assert_imported(&claim, &ended, "image.raw", false, &[]);
    }
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn an_object_that_vanishes_in_the_middle_is_imported_once_it_is_back() {
    let scene = Scene::new();
    let content = disk::content(3, 8 * MIB);
    scene.write("expected", &content);
    let vanishing = Script {
        faults: vec![Fault::CutAt(4 * MIB)],
        expires: [("/disk.img".to_owned(), (1, 404))].into(),
        ..Script::new(content.clone())
    };
    let claim = Claim::filesystem(CLAIM_BYTES);
    let import_from = |script: Script| {
        let server = Origin::start(script).or_fail("a server");
        scene.network.open(server.address());
        let url = url("http", server.address(), "disk.img");
        let import = Import { env: &http(&url), hosts: &[SERVER], ..Import::default() };
        (scene.import(&claim, &import), server.body_bytes())
    };
    let (ended, sent) = import_from(vanishing);
    assert_eq!(ended.code, 1, "{}", ended.log);
    let words = "Unable to process data: Unable to transfer source data to target file: failed to pull image: ";
    assert!(ended.message.starts_with(words), "{}", ended.message);
    assert!(ended.message.contains("404"), "{}", ended.message);
    assert!(sent >= 4 * MIB, "it did not get to the middle");
    assert_eq!(claim.names(), [""; 0]);

    let (ended, _) = import_from(Script::new(content));
    scene.assert_imported(&claim, &ended, "expected", false, &[]);
}
