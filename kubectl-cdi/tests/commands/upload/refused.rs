//! Images that the upload server refuses.

use testkit::disk;
use testkit::loopdev::LoopDevice;
use testkit::tools;

use crate::upload::{NAMESPACE, Scene, api};

const MIB: u64 = 1 << 20;

#[test]
#[ignore = "server: Kubernetes"]
fn a_refused_image_is_refused_in_the_same_words_until_there_is_space() {
    let folder = tempfile::tempdir().unwrap();
    let mut device = LoopDevice::empty(folder.path(), 8 * MIB, 512);
    let scene = Scene::with(|pod| pod.block(device.path()));
    let content = disk::sparse_content(12, 16 * MIB, 4);
    let (raw, image) = (scene.image(&content), folder.path().join("image.qcow2"));
    let convert = ["convert", "-f", "raw", "-O", "qcow2"].map(AsRef::as_ref);
    tools::run("qemu-img", convert.into_iter().chain([raw.as_os_str(), image.as_os_str()]));
    for _ in 0..3 {
        let finished = scene.upload(&image).run();
        finished.assert_failure(5, "the volume is too small: ");
        let words = "16777216 is larger than the reported available storage 8388608";
        assert!(finished.stderr.contains(words), "{}", finished.stderr);
    }
    device.grow(32 * MIB);
    let running = scene.upload(&image).start();
    scene.upload_server.wait().assert_success("the upload server");
    let succeeded = Some("Succeeded");
    api().cluster.annotate_pvc(NAMESPACE, &scene.claim, "storage.pod.phase", succeeded);
    running.wait().assert_success("an upload into a larger volume");
    disk::assert_same(device.path(), &raw, 16 * MIB, "an upload into a larger volume");
}
