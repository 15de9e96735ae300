//! `cdi-importer pack`: what KubeVirt exports, from any image.

mod interrupted;
mod targets;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Image, Spec};
use testkit::process::{Finished, Program};
use testkit::{disk, tools};

use crate::{same_disk, sha256};

const MIB: u64 = 1 << 20;

const DISK_TYPE: &str = "application/vnd.kubevirt.disk.raw+zstd";

fn pack() -> Program {
    Program::new(crate::BINARY).arg("pack").arg("--guest-architecture").arg("amd64")
}

fn into(transport: &str, path: &Path) -> String {
    format!("{transport}:{}", path.display())
}

fn succeed(program: Program, case: &str) -> Finished {
    let finished = program.run();
    finished.assert_success(case);
    finished
}

#[test]
fn a_layout_with_a_named_pipe_is_refused_at_once() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let [raw, layout, target] = ["raw", "layout", "disk.img"].map(|name| folder.path().join(name));
    std::fs::write(&raw, disk::content(1, 100_000)).or_fail("a disk");
    succeed(pack().arg(&raw).arg(into("oci", &layout)), "pack");
    let layer = manifest(&layout)["layers"][0]["digest"].as_str().or_fail("a digest").to_owned();
    let archive = folder.path().join("archive.tar");
    for (path, source) in [
        (layout.join("blobs").join(layer.replace(':', "/")), into("oci", &layout)),
        (layout.join("index.json"), into("oci", &layout)),
        (archive.clone(), into("oci-archive", &archive)),
    ] {
        std::fs::remove_file(&path).ok();
        tools::run("mkfifo", [&path]);
        let program = Program::new(crate::BINARY).args(["import", &source]).arg(&target);
        program.run().assert_failure(3, "not a regular file or block device");
    }
    assert!(!target.exists());
}

/// Imports `source`, and returns the disk.
fn import(source: &str, options: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().or_fail("a folder");
    let disk = folder.path().join("disk.img");
    let program = Program::new(crate::BINARY).args(["import", "--architecture", "amd64", source]);
    succeed(program.arg(&disk).args(options.iter().copied()), source);
    std::fs::read(disk).or_fail(source)
}

fn image(folder: &Path, compression: Compression, content: Content) -> Image {
    Spec { compression, ..Spec::new(content) }.build(folder, "image")
}

/// The blob of a descriptor. Its length and its digest are right.
fn blob(layout: &Path, descriptor: &Value) -> Vec<u8> {
    let digest = descriptor["digest"].as_str().or_fail("a digest");
    let bytes = std::fs::read(layout.join("blobs").join(digest.replace(':', "/"))).or_fail(digest);
    assert_eq!(sha256(&bytes), digest);
    assert_eq!(descriptor["size"], bytes.len());
    bytes
}

fn json_file(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).or_fail(path.display())).or_fail(path.display())
}

/// The manifest of a layout in a folder.
fn manifest(layout: &Path) -> Value {
    let index = json_file(&layout.join("index.json"));
    serde_json::from_slice(&blob(layout, &index["manifests"][0])).or_fail("the manifest")
}

fn assert_layer(layout: &Path, layer: &Value, raw: &Path, case: &str) {
    let bytes = tools::filter("zstd", ["-dc"], &blob(layout, layer));
    assert!(bytes == std::fs::read(raw).or_fail(case), "{case}: the layer is not the disk");
}

fn files_below(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.or_fail("an entry").path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.insert(path);
        }
    }
    found
}

/// Every field is as in an export of KubeVirt (`pkg/storage/oci`), but for the time of creation,
/// and the types of a disk without a machine.
#[test]
#[ignore = "tools: qemu-img, zstd"]
fn a_machine_is_what_kubevirt_exports() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    let bytes = |name: &str| std::fs::read(path(name)).or_fail(name);
    let image = image(folder.path(), Compression::Plain, Content::Sparse);
    let machine =
        r#"{"kind":"VirtualMachine","apiVersion":"kubevirt.io/v1","metadata":{"name":"vm"}}"#;
    std::fs::write(path("vm.json"), machine).or_fail("a config");
    std::fs::write(path("data.raw"), disk::content(1, 65536)).or_fail("a disk");
    let run = |target: &str| {
        let program = pack().arg("--config").arg(path("vm.json")).arg(&image.qcow2);
        let [other, third] =
            ["data-2", "copy"].map(|name| format!("{name}={}", path("data.raw").display()));
        let options = ["--disk", &other, "--disk", &third, "--name", "rootdisk"];
        let said = succeed(program.args(options).arg(target), target).stdout;
        assert!(said.starts_with(&format!("packed 3 disk(s) into {target}: 24.1")), "{said}");
    };
    run(&into("oci", &path("layout")));
    let index = json_file(&path("layout/index.json"));
    let manifest = manifest(&path("layout"));
    let layers = &manifest["layers"];
    assert_eq!(blob(&path("layout"), &manifest["config"]), machine.as_bytes());
    assert_layer(&path("layout"), &layers[0], &image.raw, "the first disk");
    assert_layer(&path("layout"), &layers[1], &path("data.raw"), "the second disk");
    // Equal disks are one blob.
    assert_eq!(files_below(&path("layout")).len(), 2 + 4);

    // The archive holds the same files, the documents first, and is the same each time.
    run(&into("oci-archive", &path("first.tar")));
    run(&into("oci-archive", &path("second.tar")));
    assert!(bytes("first.tar") == bytes("second.tar"));
    std::fs::create_dir(path("unpacked")).or_fail("a folder");
    let words = [OsStr::new("-xvf").to_owned(), path("first.tar").into(), "-C".into()];
    let names = tools::run("tar", words.into_iter().chain([path("unpacked").into()]));
    for file in files_below(&path("layout")) {
        let name = file.strip_prefix(path("layout")).or_fail("a name");
        let unpacked = std::fs::read(path("unpacked").join(name)).or_fail("a file");
        assert!(unpacked == std::fs::read(&file).or_fail("a file"), "{name:?}");
    }

    let marker = json_file(&path("layout/oci-layout"));
    let mut text =
        format!("{names}\noci-layout {marker:#}\nindex {index:#}\nmanifest {manifest:#}\n");
    // Sizes and digests depend on the version of zstd. `blob` has compared them.
    for (name, descriptor) in [
        ("MANIFEST", &index["manifests"][0]),
        ("CONFIG", &manifest["config"]),
        ("ROOTDISK", &layers[0]),
        ("DATA", &layers[1]),
    ] {
        let digest = descriptor["digest"].as_str().or_fail(name);
        text = text.replace(digest.trim_start_matches("sha256:"), name);
        text = text.replace(&format!("\"size\": {}", descriptor["size"]), "\"size\": SIZE");
    }
    crate::assert_snapshot("pack", &text);

    // Each disk is imported by its name.
    for target in [into("oci", &path("layout")), into("oci-archive", &path("first.tar"))] {
        let raw = std::fs::read(&image.raw).or_fail("a disk");
        for (name, disk) in [("rootdisk", &raw), ("data-2", &bytes("data.raw"))] {
            assert!(import(&target, &["--layer", name]) == *disk, "{target} {name}");
        }
    }
}

/// Without a machine the artifact does not claim to be one: who restores machines would accept it
/// and fail later.
#[test]
#[ignore = "slow: 5 s of CPU time"]
fn equal_disks_are_equal_layers_whatever_they_come_from() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    let image = image(folder.path(), Compression::Zlib, Content::RandomOrder);
    let mut layers = BTreeSet::new();
    let mut packed = |layout: &str| {
        let layout = path(layout);
        let manifest = manifest(&layout);
        assert_eq!(manifest["artifactType"], DISK_TYPE);
        assert_eq!(manifest["config"]["mediaType"], "application/vnd.oci.empty.v1+json");
        assert_eq!(blob(&layout, &manifest["config"]), b"{}");
        assert_layer(&layout, &manifest["layers"][0], &image.raw, "the layer");
        layers.insert(manifest["layers"][0].to_string());
    };
    let files = same_disk::files(folder.path(), &image.raw, &image.qcow2);
    for (number, source) in files.iter().enumerate() {
        let layout = format!("layout{number}");
        let program = pack().arg(source).arg(into("oci", &path(&layout)));
        succeed(program, &source.display().to_string());
        packed(&layout);
    }
    // Clusters of a compressed image come as the writer left them: the disk needs a file.
    same_disk::filter("gzip", &image.qcow2, &path("qcow2.gz"));
    let program = || pack().arg(path("qcow2.gz")).arg(into("oci", &path("scratched")));
    let refusal = "pass --scratch DIR to write the disk there first";
    program().run().assert_failure(3, refusal);
    assert!(!path("scratched").exists());
    std::fs::create_dir(path("scratch")).or_fail("a folder");
    succeed(program().arg("--scratch").arg(path("scratch")), "with scratch space");
    assert!(files_below(&path("scratch")).is_empty());
    packed("scratched");
    let digest = sha256(&std::fs::read(&image.qcow2).or_fail("the image"));
    let checked = |digest: &str, name: &str| {
        let program = pack().args(["--checksum", digest, "--scratch"]).arg(path("scratch"));
        program.arg(&image.qcow2).arg(into("oci", &path(name))).run()
    };
    checked(&digest, "checked").assert_success("a right checksum");
    packed("checked");
    checked(&sha256(b"other"), "wrong").assert_failure(6, "checksum mismatch");
    assert!(!path("wrong").exists());
    assert_eq!(layers.len(), 1, "{layers:#?}");
}

#[test]
#[ignore = "server: docker-registry"]
fn it_is_imported_as_packed_and_as_skopeo_copies_it() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    let image = image(folder.path(), Compression::Plain, Content::Dense);
    let registry = DockerRegistry::start(Setup::default());
    for (transport, name) in [("oci", "layout"), ("oci-archive", "layout.tar")] {
        let target = format!("{}:v1", into(transport, &path(name)));
        succeed(pack().arg(&image.qcow2).arg(&target), name);
        let copy = |to: &str| {
            let fixed =
                ["--insecure-policy", "copy", "--quiet", "--multi-arch=all", "--preserve-digests"];
            tools::run("skopeo", fixed.into_iter().chain(["--dest-tls-verify=false", &target, to]));
        };
        let pushed = registry.reference(&format!("disks/{transport}:v1"));
        copy(&pushed);
        let raw = tools::run("skopeo", ["inspect", "--raw", "--tls-verify=false", &pushed]);
        let found: Value = serde_json::from_str(&raw).or_fail("a manifest");
        assert_eq!(found, manifest(&path("layout")), "{transport}");
        let copied = into("oci-archive", &path(&format!("copy-of-{name}.tar")));
        copy(&copied);
        let raw = std::fs::read(&image.raw).or_fail("the disk");
        for (source, options) in [(&target, &[][..]), (&pushed, &["--insecure"]), (&copied, &[])] {
            assert!(import(source, options) == raw, "{source}");
        }
    }
}

#[test]
fn holes_cost_next_to_nothing() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let source = folder.path().join("source");
    crate::write_large(&source, 100 << 30);
    let layout = folder.path().join("layout");
    succeed(pack().arg(&source).arg(into("oci", &layout)), "a large file with little in it");
    // A zstd block has at most 128 KiB and takes four bytes.
    assert!(disk::allocated_bytes(&layout) < 5 * MIB);
    let layer = &manifest(&layout)["layers"][0];
    assert!(layer["size"].as_u64().or_fail("a size") < 4 * MIB, "{layer}");
    assert_eq!(layer["annotations"]["io.kubevirt.disk.size"], "100Gi");
}

#[test]
#[ignore = "tools: zstd"]
fn what_is_there_is_replaced_only_when_asked() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("raw"), disk::content(1, 3 * MIB)).or_fail("a disk");
    std::fs::write(path("other"), disk::content(2, 3 * MIB)).or_fail("a disk");
    let packing = |options: &[&str], source: &str, target: &str| {
        let target = into(target, &path(target));
        pack().args(options).arg(path(source)).arg(target).run()
    };
    for transport in ["oci", "oci-archive"] {
        packing(&[], "raw", transport).assert_success(transport);
        let contents = || -> Vec<_> {
            let files = files_below(folder.path());
            files.into_iter().map(|file| (std::fs::read(&file).or_fail("a file"), file)).collect()
        };
        let before = contents();
        let refused = packing(&[], "other", transport);
        refused.assert_failure(7, "file exists: pass --force to replace it");
        packing(&["--force"], "nothing", transport).assert_failure(3, "no such file");
        assert!(contents() == before, "{transport}");
        packing(&["--force"], "other", transport).assert_success(transport);
        assert!(contents() != before);
        assert_eq!(contents().len(), before.len(), "{transport}: old blobs are gone");
    }
    assert_layer(&path("oci"), &manifest(&path("oci"))["layers"][0], &path("other"), "replaced");
    let program = pack().arg("--force").arg(path("raw")).arg(into("oci-archive", &path("raw")));
    program.run().assert_failure(7, "it is the source");
    assert!(std::fs::read(path("raw")).or_fail("it") == disk::content(1, 3 * MIB));
}
