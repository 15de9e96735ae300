//! Image layouts on the local disk: `oci:` and `oci-archive:`.

use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Content, Spec};
use testkit::oci::{Compression, Image, archive_layout};
use testkit::process::Program;

use super::scene::{MIB, SOURCE_FAILED, Scene, archive, directory};

#[test]
#[ignore = "tools: zstd"]
fn a_directory_and_a_tar_of_it_are_read() {
    let scene = Scene::new();
    let (amd, arm) = (disk::content(1, 3 * MIB), disk::content(2, MIB));
    let images = [
        Image::of_disk(&amd, Compression::Zstd),
        Image { architecture: "arm64", ..Image::of_disk(&arm, Compression::Gzip) },
    ];
    let (layout, tar) = (scene.path("layout"), scene.path("image.tar"));
    scene.layout("layout", &images);
    archive_layout(&layout, &tar);
    for reference in [directory(&layout), archive(&tar)] {
        for name in ["", ":", ":test"] {
            let reference = format!("{reference}{name}");
            scene.assert_imports(scene.import(&reference), &amd, &reference);
        }
        scene.assert_imports(scene.import_for(&reference, "arm64"), &arm, &reference);
        let text = "failed to pull image: ";
        scene.assert_refused(scene.import(&format!("{reference}:other")), SOURCE_FAILED, text);
    }
    let missing = archive(&scene.path("missing"));
    scene.assert_refused(scene.import(&missing), SOURCE_FAILED, "no such file or directory");
}

#[test]
#[ignore = "tools: qemu-img"]
fn info_describes_an_image_in_a_layout() {
    let scene = Scene::new();
    let image = Spec::new(Content::Sparse).build(&scene.path(""), "image");
    let qcow2 = std::fs::read(&image.qcow2).or_fail("the image");
    let layout = scene.layout("layout", &[Image::of_disk(&qcow2, Compression::Gzip)]);
    let finished = Program::new(crate::BINARY)
        .args(["info", "--json", "--architecture", "amd64", &layout])
        .run();
    finished.assert_success("info");
    let size = format!("\"virtual_size\": {}", image.virtual_size);
    for part in ["\"format\": \"qcow2\"", &size] {
        assert!(finished.stdout.contains(part), "{}", finished.stdout);
    }
}
