//! Disks that are not in a container image: exports of KubeVirt, files pushed by ORAS, Podman's
//! machines.

use std::ffi::OsStr;

use serde_json::{Value, json};
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::gateway::{Gateway, Plan};
use testkit::images::qcow2::{Guest, Qcow2};
use testkit::images::{Content, Spec};
use testkit::oci::{
    Artifact, ArtifactLayer, Compression, Image, TITLE, archive_layout, tar, tar_layout,
    wrap_index, write_artifacts,
};
use testkit::process::Program;
use testkit::random::Random;
use testkit::{disk, syscalls, tools};

use super::scene::{IMAGE_REFUSED, MIB, SOURCE_FAILED, Scene, USAGE, archive, behind, directory};

const ALL: &[&str] = &["--multi-arch=all", "--preserve-digests"];

/// A layout of these artifacts, and its reference.
fn layout(scene: &Scene, name: &str, artifacts: &[Artifact]) -> String {
    let folder = scene.path(name);
    write_artifacts(&folder, artifacts);
    directory(&folder)
}

fn info(arguments: &[&str]) -> String {
    let finished = Program::new(crate::BINARY).arg("info").args(arguments).run();
    finished.assert_success("info");
    finished.stdout
}

#[test]
#[ignore = "server: docker-registry"]
fn an_export_of_kubevirt_is_read_from_a_layout_a_tar_and_a_registry() {
    let (scene, registry) = (Scene::new(), DockerRegistry::start(Setup::default()));
    let content = disk::sparse_content(1, 16 * MIB, 4);
    let artifact =
        Artifact::kubevirt_export(vec![ArtifactLayer::kubevirt_disk("rootdisk", &content)]);
    let reference = layout(&scene, "layout", &[artifact]);
    let tar = scene.path("export.tar");
    archive_layout(&scene.path("layout"), &tar);
    // As its own tools push it: with the index.
    wrap_index(&scene.path("layout"));
    registry.push_layout("export:1", &reference, ALL);
    let gateway = Gateway::start(registry.address(), Plan::default()).or_fail("a gateway");
    for reference in [reference, archive(&tar), behind(&gateway, "export:1")] {
        scene.assert_imports(scene.import(&reference), &content, &reference);
        for selector in ["rootdisk", "rootdisk.raw.zst", "io.kubevirt.disk.name=rootdisk"] {
            let program = scene.import(&reference).args(["--layer", selector]);
            scene.assert_imports(program, &content, selector);
        }
    }
    // The configuration of an artifact is not fetched.
    let requests = gateway.requests();
    let blobs = requests.iter().filter(|seen| seen.request.path().contains("/blobs/"));
    assert_eq!(blobs.count(), 4, "{requests:?}");
}

/// The image of CDI's tests for the layer selector (`kubevirt-vm-oci-image.tar` of cdi#4214),
/// rebuilt from what is known of it: members and their order, fields, sizes. Its disk is noise, so
/// the digest differs.
#[test]
#[ignore = "tools: zstd"]
fn the_test_image_of_cdis_layer_selector_is_imported() {
    let scene = Scene::new();
    let mut content = vec![0; 65536];
    Random::new(1).fill(&mut content[..2048]);
    let mut layer = ArtifactLayer::kubevirt_disk("rootdisk", &content);
    layer.annotations["io.kubevirt.disk.size"] = json!("64Ki");
    assert!((2060..2090).contains(&layer.content.len()), "{}", layer.content.len());
    let folder = scene.path("layout");
    let names = write_artifacts(&folder, &[Artifact::kubevirt_export(vec![layer])]);
    let digest = names.last().or_fail("a layer").replace("blobs/sha256/", "sha256:");
    let folders = ["blobs/", "blobs/sha256/"].map(str::to_owned);
    let tar = scene.path("kubevirt-vm-oci-image.tar");
    std::fs::write(&tar, tar_layout(&folder, &[&folders, &names[..]].concat())).or_fail("a tar");
    for selector in [&[][..], &["--layer", &digest], &["--layer", "rootdisk"]] {
        let program = scene.import(&archive(&tar)).args(selector);
        scene.assert_imports(program, &content, &format!("{selector:?}"));
    }
}

/// What `pack` writes, `import` reads, whatever the guest has in its first sectors.
#[test]
#[ignore = "tools: qemu-img"]
fn a_packed_disk_comes_back_whatever_its_guest_wrote() {
    let scene = Scene::new();
    let image = Qcow2::new(16, vec![Guest::Data(1), Guest::Hole]).build().image;
    for (number, mut disk) in [image, b"U".repeat(20_480)].into_iter().enumerate() {
        disk.resize(1 << 20, 0);
        let [raw, qcow2] = ["guest.raw", "guest.qcow2"].map(|name| scene.path(name));
        std::fs::write(&raw, &disk).or_fail("a disk");
        let words = ["convert", "-f", "raw", "-O", "qcow2"].map(OsStr::new).into_iter();
        tools::run("qemu-img", words.chain([raw.as_os_str(), qcow2.as_os_str()]));
        let layout = format!("oci:{}", scene.path(&format!("layout{number}")).display());
        let packed = Program::new(crate::BINARY).arg("pack").arg(&qcow2).arg(&layout).run();
        packed.assert_success("pack");
        scene.assert_imports(scene.import(&layout), &disk, "packed");
    }
}

#[test]
#[ignore = "tools: strace, zstd"]
fn nothing_is_written_besides_the_target() {
    let scene = Scene::new();
    let content = disk::content(2, 4 * MIB);
    let artifact =
        Artifact::kubevirt_export(vec![ArtifactLayer::kubevirt_disk("rootdisk", &content)]);
    let reference = layout(&scene, "layout", &[artifact]);
    let log = scene.path("strace.log");
    let finished = syscalls::watched(scene.import(&reference), &log).start().wait();
    finished.assert_success("under strace");
    let calls = syscalls::created(&log);
    assert!(calls.iter().all(|call| syscalls::is_about(call, &scene.target())), "{calls:#?}");
}

#[test]
#[ignore = "tools: zstd"]
fn a_machine_with_several_disks_has_one_selected() {
    let scene = Scene::new();
    let disks: Vec<_> = (0..3_u64).map(|seed| disk::content(seed, MIB * (seed + 1))).collect();
    let layers = ["root", "data", "swap"].iter().zip(&disks);
    let layers = layers.map(|(name, disk)| ArtifactLayer::kubevirt_disk(name, disk)).collect();
    let reference = layout(&scene, "layout", &[Artifact::kubevirt_export(layers)]);

    let text = "the artifact has several disks: root, data, swap; choose one with --layer";
    scene.assert_refused(scene.import(&reference), SOURCE_FAILED, text);
    let text = "no layer matches boot; available layers: root, data, swap";
    scene.assert_refused(scene.import(&reference).args(["--layer", "boot"]), SOURCE_FAILED, text);

    let listed: Value = serde_json::from_str(&info(&["--json", &reference])).or_fail("JSON");
    let listed = listed["disks"].as_array().or_fail("disks");
    assert_eq!(listed.len(), 3, "{listed:?}");
    for (entry, content) in listed.iter().zip(&disks) {
        assert_eq!(entry["stated_size"], json!(content.len().to_string()));
        for key in ["name", "digest", "layer"] {
            let selector = entry[key].as_str().or_fail(key);
            let program = scene.import(&reference).args(["--layer", selector]);
            scene.assert_imports(program, content, selector);
        }
    }
    let text = info(&[&reference]);
    for part in ["layer              data", "stated disk size 2097152", "sha256:"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
#[ignore = "server: docker-registry"]
fn a_file_pushed_by_oras_is_the_disk_whatever_its_type_says() {
    let (scene, registry) = (Scene::new(), DockerRegistry::start(Setup::default()));
    let image = Spec::new(Content::Sparse).build(&scene.path(""), "image");
    let (qcow2, raw) =
        (std::fs::read(&image.qcow2).or_fail("qcow2"), std::fs::read(&image.raw).or_fail("raw"));
    let compressed = tools::COMPRESSORS.map(|name| (name, tools::filter(name, ["-c"], &qcow2)));
    let files = [("qcow2", qcow2.clone()), ("raw", raw.clone())].into_iter().chain(compressed);
    for (name, file) in files {
        let title = format!("../../images/{name}\u{202e}");
        let files = Artifact::of_files(vec![ArtifactLayer::oras_file(&title, &file)]);
        // Image-spec 1.0, and the platform that `--artifact-platform` adds.
        let old = Artifact {
            artifact_type: None,
            config: ("application/vnd.unknown.config.v1+json", "{\"a\":1}".to_owned()),
            ..files.clone()
        };
        let config = (
            "application/vnd.oci.image.config.v1+json",
            r#"{"architecture":"amd64","os":"linux"}"#.to_owned(),
        );
        let with_platform = Artifact { config, ..files.clone() };
        for (variant, artifact) in [("new", files), ("old", old), ("platform", with_platform)] {
            let reference = layout(&scene, &format!("{name}-{variant}"), &[artifact]);
            scene.assert_imports(scene.import(&reference), &raw, &reference);
            if variant == "new" {
                let tag = format!("oras:{name}");
                registry.push_layout(&tag, &reference, &["--preserve-digests"]);
                scene.assert_imports(scene.import(&registry.reference(&tag)), &raw, &tag);
                assert!(info(&["--insecure", &registry.reference(&tag)]).contains("virtual size"));
            }
        }
    }
}

#[test]
fn a_tar_in_an_artifact_is_searched_like_a_layer() {
    let scene = Scene::new();
    let content = disk::content(4, MIB);
    let folder = |files: &[(&str, &[u8])]| {
        let content = tools::filter("gzip", ["-c"], &tar(files));
        Artifact::of_files(vec![ArtifactLayer {
            media_type: "x/y",
            content,
            annotations: json!({ TITLE: "disk" }),
        }])
    };
    let reference = layout(&scene, "disk", &[folder(&[("disk/disk.img", &content)])]);
    scene.assert_imports(scene.import(&reference), &content, "disk/");
    let reference = layout(&scene, "other", &[folder(&[("other/disk.img", &content)])]);
    let text = "has no file in its folder `disk`";
    scene.assert_refused(scene.import(&reference), SOURCE_FAILED, text);
}

#[test]
fn a_disk_of_zeros_in_an_artifact_is_a_disk() {
    let scene = Scene::new();
    let mut content = vec![0; 2 << 20];
    content[1 << 20..][..4].copy_from_slice(b"data");
    let reference =
        layout(&scene, "raw", &[Artifact::of_files(vec![ArtifactLayer::oras_file("d", &content)])]);
    scene.assert_imports(scene.import(&reference), &content, "zeros");
}

#[test]
#[ignore = "server: docker-registry"]
fn an_index_of_podmans_machines_has_its_kind_selected() {
    let (scene, registry) = (Scene::new(), DockerRegistry::start(Setup::default()));
    let contents: Vec<_> = (0..4_u64).map(|seed| disk::content(20 + seed, MIB)).collect();
    let kinds =
        [("applehv", "aarch64"), ("qemu", "aarch64"), ("applehv", "x86_64"), ("qemu", "x86_64")];
    let artifacts: Vec<_> = kinds
        .iter()
        .zip(&contents)
        .map(|((kind, architecture), content)| {
            let title = format!("podman-machine.{architecture}.{kind}.raw.zst");
            let layer = ArtifactLayer {
                media_type: "application/zstd",
                ..ArtifactLayer::oras_file(&title, &tools::filter("zstd", ["-c"], content))
            };
            Artifact::podman_machine(kind, architecture, layer)
        })
        .collect();
    let reference = layout(&scene, "layout", &artifacts);
    // A layout lists the images itself, a registry has an index.
    wrap_index(&scene.path("layout"));
    registry.push_layout("machine-os:5.7", &reference, ALL);
    write_artifacts(&scene.path("layout"), &artifacts);
    for reference in [reference, registry.reference("machine-os:5.7")] {
        for (architecture, expected) in
            [("amd64", &contents[3]), ("arm64", &contents[1]), ("aarch64", &contents[1])]
        {
            let program =
                scene.import_for(&reference, architecture).args(["--layer", "disktype=qemu"]);
            scene.assert_imports(program, expected, architecture);
        }
        let text = "the index has several disks for this platform: disktype=applehv, disktype=qemu; choose";
        scene.assert_refused(scene.import(&reference), SOURCE_FAILED, text);
        let listed: Value = serde_json::from_str(&info_insecure(&reference)).or_fail("JSON");
        let digest = listed["disks"][1]["digest"].as_str().or_fail("a digest");
        let program = scene.import_for(&reference, "s390x").args(["--layer", digest]);
        scene.assert_imports(program, &contents[3], digest);
        let text = "there are: linux/";
        let program = scene.import_for(&reference, "s390x").args(["--layer", "disktype=qemu"]);
        scene.assert_refused(program, SOURCE_FAILED, text);
    }
}

fn info_insecure(reference: &str) -> String {
    let insecure: &[&str] = if reference.starts_with("oci") { &[] } else { &["--insecure"] };
    info(&[insecure, &["--json", "--architecture", "amd64", reference]].concat())
}

#[test]
#[ignore = "tools: zstd"]
fn damage_is_noticed() {
    let scene = Scene::new();
    let content = disk::content(6, MIB);
    let write = |name: &str, layer| {
        write_artifacts(&scene.path(name), &[Artifact::of_files(vec![layer])]);
    };
    write("raw", ArtifactLayer::oras_file("disk.raw", &content));
    write("zstd", ArtifactLayer::kubevirt_disk("root", &content));
    scene.layout("image", &[Image::of_disk(&content, Compression::None)]);
    for name in ["raw", "zstd", "image"] {
        let blobs = std::fs::read_dir(scene.path(name).join("blobs/sha256")).or_fail("blobs");
        let blobs = blobs.map(|blob| blob.or_fail("a blob").path());
        let layer = blobs.max_by_key(|blob| blob.metadata().or_fail("a blob").len());
        let layer = layer.or_fail("a layer");
        let mut bytes = std::fs::read(&layer).or_fail("the layer");
        // The last bytes of a zstd stream are data or a checksum, those of a tar are padding: the
        // digest sees them before the decoder complains.
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        for (bytes, text) in [
            (&bytes[..], "the received bytes have sha256:"),
            (&bytes[..last], "bytes given in the manifest"),
        ] {
            std::fs::write(&layer, bytes).or_fail("the layer");
            let finished = scene.import(&directory(&scene.path(name))).run();
            assert!(finished.code() != 0 && !scene.target().exists(), "{name}: {finished:?}");
            assert!(name == "zstd" || finished.stderr.contains(text), "{name}: {finished:?}");
        }
    }
}

#[test]
fn artifacts_without_a_disk_are_described() {
    let scene = Scene::new();
    let chart = |layers| Artifact {
        config: ("application/vnd.cncf.helm.config.v1+json", "{\"name\":\"x\"}".to_owned()),
        ..Artifact::of_files(layers)
    };
    let file = |title: &str| ArtifactLayer {
        annotations: json!({ TITLE: title }),
        ..ArtifactLayer::oras_file("", b"text")
    };
    let reference = layout(&scene, "none", &[chart(Vec::new())]);
    let text = "no disk found in the artifact (artifactType application/vnd.unknown.artifact.v1, config \
                application/vnd.cncf.helm.config.v1+json, layers of type none)";
    scene.assert_refused(scene.import(&reference), SOURCE_FAILED, text);
    let reference = layout(&scene, "two", &[chart(vec![file("../a\n\u{1b}[2J"), file("b")])]);
    let text = "has several layers: ../a \\u{1b}[2J, b; choose one with --layer";
    scene.assert_refused(scene.import(&reference), SOURCE_FAILED, text);
    let reference = layout(
        &scene,
        "same",
        &[chart(vec![file("x"), ArtifactLayer { content: b"y".to_vec(), ..file("x") }])],
    );
    let program = scene.import(&reference).args(["--layer", "x"]);
    scene.assert_refused(
        program,
        SOURCE_FAILED,
        "several layers match x: x, x; choose one with --layer",
    );
    for selector in ["", "=x", "sha256:1"] {
        let program = scene.import(&reference).args(["--layer", selector]);
        scene.assert_refused(program, USAGE, "--layer");
    }
    let program = Program::new(crate::BINARY).args(["info", "--layer", "x", "/dev/null"]).run();
    program.assert_failure(
        USAGE,
        "--layer is for http, https, docker, oci and oci-archive sources, not for files",
    );
}

#[test]
#[ignore = "slow: waits 8 s"]
fn hostile_manifests_are_refused_within_the_memory() {
    let scene = Scene::new();
    let many = |count: usize, annotations: Value| {
        let layer = ArtifactLayer { annotations, ..ArtifactLayer::oras_file("", b"x") };
        Artifact::of_files(vec![layer; count])
    };
    let names: serde_json::Map<String, Value> =
        (0..300_000).map(|n| (format!("{n:x}"), json!(""))).collect();
    for (name, artifact, text) in [
        (
            "layers",
            many(10_000, json!({})),
            "the manifest has 10000 layers, at most 1024 are supported",
        ),
        ("titles", many(2, json!({ TITLE: "x".repeat(1 << 20) })), "choose one with --layer"),
        ("size", many(2, Value::Object(names.clone())), "a document may have at most 4194304"),
        ("annotations", many(1, Value::Object(names)), "no layer matches x"),
        ("title", many(1, json!({ TITLE: "x".repeat(3 << 20) })), "no layer matches x"),
    ] {
        let program = scene.import(&layout(&scene, name, &[artifact]));
        let program =
            if text.starts_with("no layer") { program.args(["--layer", "x"]) } else { program };
        let finished = scene.assert_refused(program, SOURCE_FAILED, text);
        assert!(finished.stderr.len() < 4096, "{name}: {}", finished.stderr);
    }
}

#[test]
#[ignore = "tools: zstd"]
fn a_bomb_in_a_layer_is_refused() {
    let scene = Scene::new();
    let zeros = vec![0; 64 << 20];
    let once = tools::filter("zstd", ["-c", "-19", "--long=27"], &zeros);
    let layers = (0..5).fold(once, |bytes, _| tools::filter("zstd", ["-c"], &bytes));
    let layer = ArtifactLayer { media_type: "x/y", ..ArtifactLayer::oras_file("disk", &layers) };
    let reference = layout(&scene, "bomb", &[Artifact::of_files(vec![layer])]);
    let finished = scene.import(&reference).run();
    let text = "more than 4 nested layers of compression";
    assert!(finished.stderr.contains(text), "{}", finished.stderr);
}

#[test]
fn indexes_inside_each_other_end() {
    let scene = Scene::new();
    let content = disk::content(7, MIB);
    let artifact = Artifact::of_files(vec![ArtifactLayer::oras_file("disk", &content)]);
    let reference = layout(&scene, "layout", &[artifact]);
    for _ in 0..3 {
        wrap_index(&scene.path("layout"));
    }
    scene.assert_imports(scene.import(&reference), &content, "three indexes");
    let program = scene.import(&reference).args(["--layer", &format!("sha256:{}", "0".repeat(64))]);
    scene.assert_refused(program, SOURCE_FAILED, "no layer matches sha256:000");
    for _ in 0..3 {
        wrap_index(&scene.path("layout"));
    }
    scene.assert_refused(
        scene.import(&reference),
        SOURCE_FAILED,
        "more than 4 indexes inside each other",
    );
    // An index cannot hold its own digest, so one that claims it is refused as damaged.
    let index = scene.path("layout/index.json");
    let text = std::fs::read_to_string(&index).or_fail("index.json");
    let document: Value = serde_json::from_str(&text).or_fail("JSON");
    let digest = document["manifests"][0]["digest"].as_str().or_fail("a digest").to_owned();
    let blob = scene.path("layout/blobs").join(digest.replace(':', "/"));
    std::fs::write(blob, &text).or_fail("the index");
    scene.assert_refused(scene.import(&reference), SOURCE_FAILED, "the source announced sha256:");
}

#[test]
#[ignore = "tools: bzip2, xz, zstd"]
fn a_compressed_layer_that_cannot_be_decoded_never_becomes_a_disk() {
    let scene = Scene::new();
    let tar = tar(&[("disk/disk.img", &disk::content(3, MIB))]);
    for name in tools::COMPRESSORS {
        let whole = tools::filter(name, ["-c"], &tar);
        for place in [64, whole.len() / 2] {
            let mut file = whole.clone();
            file[place..place + 64].fill(0xFF);
            let layer = ArtifactLayer::oras_file(name, &file);
            let case = format!("{name}{place}");
            let reference = layout(&scene, &case, &[Artifact::of_files(vec![layer])]);
            let finished = scene.import(&reference).run();
            // Damage in the part from which the kind of the layer is detected is the image's.
            assert!([SOURCE_FAILED, IMAGE_REFUSED].contains(&finished.code()), "{finished:?}");
            assert!(finished.stderr.contains(&format!("the {name} stream is ")), "{finished:?}");
            assert!(!scene.target().exists(), "{case}");
        }
    }
    // Only after 3 MiB is it known that the layer is a tar.
    let zstd = |bytes: &[u8]| tools::filter("zstd", ["-c"], bytes);
    let void = vec![0; 3 << 20];
    let skipped = [b"\x50\x2A\x4D\x18\0\0\x30\0", &void[..]].concat();
    let layer = ArtifactLayer::oras_file("late", &[zstd(b""), skipped, zstd(&tar)].concat());
    let reference = layout(&scene, "late", &[Artifact::of_files(vec![layer])]);
    let text = "the first 2097152 bytes of the layer decode to too little";
    scene.assert_refused(scene.import(&reference), SOURCE_FAILED, text);
}
