//! The disk that is taken from an image: layers, compressions, formats, platforms.

use testkit::disk;
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::images::{Compression as Clusters, Content, Spec};
use testkit::oci::{Compression, Image, tar, tar_of};
use testkit::tools;

use super::scene::{MIB, SOURCE_FAILED, Scene, USAGE};

const DISK: &str = "disk/disk.img";

#[test]
#[ignore = "server: docker-registry"]
fn raw_and_qcow2_disks_come_out_of_every_compression() {
    let (scene, registry) = (Scene::new(), DockerRegistry::start(Setup::default()));
    let spec = Spec { compression: Clusters::Zlib, ..Spec::new(Content::Sparse) };
    let image = spec.build(&scene.path(""), "image");
    let (qcow2, raw) =
        (std::fs::read(&image.qcow2).or_fail("qcow2"), std::fs::read(&image.raw).or_fail("raw"));
    let gz = tools::filter("gzip", ["-c", "-1"], &qcow2);
    for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
        for (name, content) in [("raw", &raw), ("qcow2", &qcow2), ("gz", &gz)] {
            let tag = format!("disks/{name}:{compression:?}");
            let images = [Image::of_disk(content, compression)];
            registry.push(&tag, &images, &["--preserve-digests"]);
            let program = scene.import(&registry.reference(&tag));
            scene.assert_imports(program, &raw, &tag);
        }
    }
}

#[test]
#[ignore = "server: docker-registry"]
fn a_digest_is_a_valid_reference_but_not_together_with_a_tag() {
    let (scene, registry) = (Scene::new(), DockerRegistry::start(Setup::default()));
    let content = disk::content(2, MIB);
    registry.push("a:1", &[Image::of_disk(&content, Compression::Zstd)], &["--preserve-digests"]);
    let inspected = tools::run(
        "skopeo",
        ["inspect", "--tls-verify=false", "--format", "{{.Digest}}", &registry.reference("a:1")],
    );
    let digest = inspected.trim();
    let reference = registry.reference(&format!("a@{digest}"));
    scene.assert_imports(scene.import(&reference), &content, "by digest");
    let both = registry.reference(&format!("a:1@{digest}"));
    scene.assert_refused(scene.import(&both), USAGE, "Could not parse image: ");
    let wrong = registry.reference(&format!("a@sha256:{}", "0".repeat(64)));
    scene.assert_refused(
        scene.import(&wrong),
        SOURCE_FAILED,
        "failed to pull image: reading manifest",
    );
}

#[test]
fn the_disk_is_the_one_that_a_container_would_see() {
    let scene = Scene::new();
    let (lower, upper) = (disk::content(3, MIB), disk::content(4, 2 * MIB));
    let layer = |files: &[(&str, &[u8])]| (tar(files), Compression::Gzip);
    let base = || layer(&[(DISK, &lower)]);
    let other = || layer(&[("etc/os-release", b"NAME=x"), ("diskette/disk.img", b"x")]);
    for (name, layers, expected) in [
        ("below", vec![base(), other(), other()], Some(&lower)),
        ("above", vec![other(), base()], Some(&lower)),
        ("override", vec![base(), other(), layer(&[(DISK, &upper)])], Some(&upper)),
        ("another", vec![base(), layer(&[("disk/other.img", &upper)])], Some(&upper)),
        (
            "replaced",
            vec![base(), layer(&[("disk/.wh.disk.img", b""), ("disk/new.img", &upper)])],
            Some(&upper),
        ),
        ("deleted", vec![base(), layer(&[("disk/.wh.disk.img", b"")])], None),
        ("opaque", vec![base(), layer(&[("disk/.wh..wh..opq", b"")]), other()], None),
        ("folder", vec![base(), layer(&[(".wh.disk", b"")])], None),
        (
            "unrelated",
            vec![base(), layer(&[("disk/.wh.other", b""), ("tmp/.wh.disk", b"")])],
            Some(&lower),
        ),
        ("nothing", vec![other()], None),
    ] {
        let program = scene.import(&scene.layout(name, &[Image::new(layers)]));
        match expected {
            Some(content) => {
                let finished = scene.assert_imports(program.arg("-v"), content, name);
                assert!(finished.stderr.contains("found in the layer"), "{}", finished.stderr);
            }
            None => {
                let text = "has no file in its folder `disk`, where a container disk has its image";
                scene.assert_refused(program, SOURCE_FAILED, text);
            }
        }
    }
}

#[test]
#[ignore = "tools: zstd"]
fn several_files_or_a_link_in_place_of_the_disk_are_refused() {
    let scene = Scene::new();
    let content = disk::content(5, MIB);
    let two: &[(&str, &[u8])] = &[(DISK, &content), ("disk/other.img", b"x")];
    let two = scene.layout("two", &[Image::new(vec![(tar(two), Compression::Zstd)])]);
    let text = "Cannot locate image file: image directory contains more than one file";
    scene.assert_refused(scene.import(&two), SOURCE_FAILED, text);

    let folder = scene.path("rootfs");
    std::fs::create_dir_all(folder.join("disk")).or_fail("a folder");
    std::fs::write(folder.join("image"), &content).or_fail("an image");
    std::os::unix::fs::symlink("../image", folder.join(DISK)).or_fail("a link");
    let layer = tar_of(&folder, ["image", DISK]);
    let link = scene.layout("link", &[Image::new(vec![(layer, Compression::None)])]);
    let text = "Cannot locate image file: 'disk/disk.img' is a symbolic link to '../image'";
    scene.assert_refused(scene.import(&link), SOURCE_FAILED, text);
}

#[test]
#[ignore = "root: rights of root"]
fn holes_of_a_sparse_file_stay_holes() {
    let scene = Scene::new();
    let folder = scene.path("rootfs");
    std::fs::create_dir_all(folder.join("disk")).or_fail("a folder");
    let file = std::fs::File::create(folder.join(DISK)).or_fail("a disk");
    let data = disk::content(6, MIB);
    std::os::unix::fs::FileExt::write_all_at(&file, &data, 100 * MIB).or_fail("data");
    file.set_len(300 * MIB).or_fail("a length");
    let layer = tar_of(&folder, [DISK]);
    assert!((layer.len() as u64) < 2 * MIB, "{} bytes of tar", layer.len());
    let sparse = scene.layout("sparse", &[Image::new(vec![(layer, Compression::None)])]);
    let finished = scene.import(&sparse).run();
    finished.assert_success("sparse");
    disk::assert_same(&scene.target(), &folder.join(DISK), 300 * MIB, "sparse");
    assert!(finished.written_bytes() < 3 * MIB, "{} bytes written", finished.written_bytes());
}

#[test]
#[ignore = "server: docker-registry"]
fn the_image_for_the_platform_is_imported_or_none() {
    let (scene, registry) = (Scene::new(), DockerRegistry::start(Setup::default()));
    let (amd, arm) = (disk::content(7, MIB), disk::content(8, MIB));
    let images = [
        Image { architecture: "arm64", ..Image::of_disk(&arm, Compression::Gzip) },
        Image::of_disk(&amd, Compression::Gzip),
    ];
    registry.push("multi:oci", &images, &["--all"]);
    registry.push("multi:list", &images, &["--all", "--format", "v2s2"]);
    registry.push("single", &images[1..], &[]);
    let import =
        |name: &str, architecture: &str| scene.import_for(&registry.reference(name), architecture);
    for (name, kind) in [("multi:oci", "image index"), ("multi:list", "manifest list")] {
        scene.assert_imports(scene.import(&registry.reference(name)), &amd, name);
        let text = format!(
            "no image found in {kind} for architecture \"absent\", variant \"\", OS \"linux\"; there are: linux/"
        );
        scene.assert_refused(import(name, "absent"), SOURCE_FAILED, &text);
    }
    let text = "Error validating architecture: manifest image architecture: \"amd64\" doesn't match requested \
                architecture: \"absent\"";
    scene.assert_refused(import("single", "absent"), SOURCE_FAILED, text);
}

#[test]
fn a_bootc_image_is_refused() {
    let scene = Scene::new();
    let image = Image {
        labels: vec![("containers.bootc", "1")],
        ..Image::of_disk(&disk::content(9, MIB), Compression::Gzip)
    };
    let layout = scene.layout("bootc", &[image]);
    scene.assert_refused(scene.import(&layout), SOURCE_FAILED, "bootc image detected: ");
}
