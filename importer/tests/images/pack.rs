//! `cdi-importer pack`: what KubeVirt exports, from any image.

mod interrupted;
mod targets;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use datapath::digest::{DigestAlgorithm, RunningDigest};
use serde_json::{Value, json};
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Image, Spec};
use testkit::process::{Finished, Program};
use testkit::tmpfs::Tmpfs;
use testkit::{disk, tools};

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

fn sha256(bytes: &[u8]) -> String {
    let mut digest = RunningDigest::new(DigestAlgorithm::Sha256);
    digest.update(bytes);
    digest.finish_digest()
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

/// Every field is as in an export of KubeVirt (`pkg/storage/oci`), but for the time of creation, and the types of a disk without a machine.
#[test]
#[ignore = "tools: qemu-img, zstd"]
fn a_machine_is_what_kubevirt_exports() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    let image = image(folder.path(), Compression::Plain, Content::Sparse);
    let machine = json!({ "kind": "VirtualMachine", "apiVersion": "kubevirt.io/v1", "metadata": { "name": "vm" } });
    std::fs::write(path("vm.json"), machine.to_string()).or_fail("a config");
    std::fs::write(path("data.raw"), disk::content(1, 65536)).or_fail("a disk");
    let run = |target: &str| {
        let program = pack().arg("--config").arg(path("vm.json")).arg(&image.qcow2);
        let other = format!("data-2={}", path("data.raw").display());
        let third = format!("copy={}", path("data.raw").display());
        let program =
            program.args(["--disk", &other, "--disk", &third, "--name", "rootdisk"]).arg(target);
        let finished = succeed(program, target);
        assert!(
            finished.stdout.starts_with(&format!("packed 3 disk(s) into {target}: 24.1")),
            "{}",
            finished.stdout
        );
    };
    run(&into("oci", &path("layout")));
    let index = json_file(&path("layout/index.json"));
    let manifest_type = "application/vnd.oci.image.manifest.v1+json";
    let expected = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "artifactType": "application/vnd.kubevirt.virtualmachine.v1",
        "manifests": [{
            "mediaType": manifest_type,
            "digest": index["manifests"][0]["digest"],
            "size": index["manifests"][0]["size"],
            "platform": { "architecture": "amd64", "os": "linux" },
        }],
    });
    assert_eq!(index, expected);
    assert_eq!(json_file(&path("layout/oci-layout")), json!({ "imageLayoutVersion": "1.0.0" }));
    let manifest = manifest(&path("layout"));
    let layer = |number: usize, name: &str, size: &str| {
        let found = &manifest["layers"][number];
        json!({
            "mediaType": DISK_TYPE,
            "digest": found["digest"],
            "size": found["size"],
            "annotations": {
                "io.kubevirt.disk.name": name,
                "io.kubevirt.disk.size": size,
                "org.opencontainers.image.title": format!("{name}.raw.zst"),
            },
        })
    };
    let expected = json!({
        "schemaVersion": 2,
        "mediaType": manifest_type,
        "artifactType": "application/vnd.kubevirt.virtualmachine.v1",
        "config": {
            "mediaType": "application/vnd.kubevirt.virtualmachine.config.v1+json",
            "digest": manifest["config"]["digest"],
            "size": manifest["config"]["size"],
        },
        "layers": [layer(0, "rootdisk", "24Mi"), layer(1, "data-2", "64Ki"), layer(2, "copy", "64Ki")],
    });
    assert_eq!(manifest, expected);
    assert_eq!(blob(&path("layout"), &manifest["config"]), machine.to_string().as_bytes());
    assert_layer(&path("layout"), &manifest["layers"][0], &image.raw, "the first disk");
    assert_layer(&path("layout"), &manifest["layers"][1], &path("data.raw"), "the second disk");
    // Equal disks are one blob.
    assert_eq!(files_below(&path("layout")).len(), 2 + 4);

    // The archive holds the same files, the documents first, and is the same each time.
    run(&into("oci-archive", &path("first.tar")));
    run(&into("oci-archive", &path("second.tar")));
    let bytes = |name: &str| std::fs::read(path(name)).or_fail(name);
    assert!(bytes("first.tar") == bytes("second.tar"));
    let names = tools::run("tar", ["-tf".as_ref(), path("first.tar").as_os_str()]);
    let name = |descriptor: &Value| {
        format!("blobs/{}", descriptor["digest"].as_str().unwrap_or("").replace(':', "/"))
    };
    let expected = ["oci-layout".to_owned(), "index.json".to_owned(), name(&index["manifests"][0])]
        .into_iter();
    let expected = expected.chain([
        name(&manifest["config"]),
        name(&manifest["layers"][0]),
        name(&manifest["layers"][1]),
    ]);
    assert_eq!(names.lines().map(str::to_owned).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    std::fs::create_dir(path("unpacked")).or_fail("a folder");
    let words = [
        OsStr::new("-xf").to_owned(),
        path("first.tar").into(),
        "-C".into(),
        path("unpacked").into(),
    ];
    tools::run("tar", words);
    for file in files_below(&path("layout")) {
        let name = file.strip_prefix(path("layout")).or_fail("a name");
        assert!(
            bytes(&format!("unpacked/{}", name.display())) == std::fs::read(&file).or_fail("it"),
            "{name:?}"
        );
    }

    // Each disk is imported by its name.
    for target in [into("oci", &path("layout")), into("oci-archive", &path("first.tar"))] {
        assert!(
            import(&target, &["--layer", "rootdisk"]) == std::fs::read(&image.raw).or_fail("it")
        );
        for name in ["data-2", "copy"] {
            assert!(import(&target, &["--layer", name]) == bytes("data.raw"), "{target} {name}");
        }
    }
}

/// Without a machine the artifact does not claim to be one: who restores machines would accept it and fail later.
#[test]
#[ignore = "tools: qemu-img, qemu-io, xz, zstd"]
fn equal_disks_are_equal_layers_whatever_they_come_from() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    let image = image(folder.path(), Compression::Zlib, Content::RandomOrder);
    let convert = |name: &str, options: &[&str]| {
        let files = [image.raw.as_os_str(), path(name).as_os_str()].map(OsStr::to_owned);
        tools::run(
            "qemu-img",
            ["convert", "-f", "raw", "-O"].iter().chain(options).map(Into::into).chain(files),
        );
        path(name)
    };
    let filtered = |name: &str, program: &str, file: &Path| {
        let bytes = tools::filter(program, ["-c"], &std::fs::read(file).or_fail("an image"));
        std::fs::write(path(name), bytes).or_fail(name);
        path(name)
    };
    let sources = [
        image.raw.clone(),
        image.qcow2.clone(),
        convert("zstd.qcow2", &["qcow2", "-c", "-o", "compression_type=zstd,cluster_size=2M"]),
        convert("stream.vmdk", &["vmdk", "-o", "subformat=streamOptimized"]),
        convert("disk.vhdx", &["vhdx"]),
        convert("dynamic.vhd", &["vpc", "-o", "force_size=on"]),
        convert("fixed.vhd", &["vpc", "-o", "subformat=fixed,force_size=on"]),
        convert("disk.vdi", &["vdi"]),
        filtered("raw.gz", "gzip", &image.raw),
        filtered("raw.xz", "xz", &image.raw),
        filtered("fixed.vhd.gz", "gzip", &path("fixed.vhd")),
    ];
    let mut layers = BTreeSet::new();
    for (number, source) in sources.iter().enumerate() {
        let case = source.display().to_string();
        let layout = path(&format!("layout{number}"));
        succeed(pack().arg(source).arg(into("oci", &layout)), &case);
        let manifest = manifest(&layout);
        assert_eq!(manifest["artifactType"], DISK_TYPE);
        assert_eq!(manifest["config"]["mediaType"], "application/vnd.oci.empty.v1+json");
        assert_eq!(blob(&layout, &manifest["config"]), b"{}");
        assert_layer(&layout, &manifest["layers"][0], &image.raw, &case);
        layers.insert(manifest["layers"][0].to_string());
    }
    assert_eq!(layers.len(), 1, "{layers:#?}");

    // Clusters of a compressed image come as the writer left them: the disk needs a file.
    let compressed = filtered("image.qcow2.gz", "gzip", &image.qcow2);
    let target = into("oci", &path("scratched"));
    pack()
        .arg(&compressed)
        .arg(&target)
        .run()
        .assert_failure(3, "pass --scratch DIR to write the disk there first");
    assert!(!path("scratched").exists());
    std::fs::create_dir(path("scratch")).or_fail("a folder");
    succeed(
        pack().arg("--scratch").arg(path("scratch")).arg(&compressed).arg(&target),
        "with scratch space",
    );
    assert!(files_below(&path("scratch")).is_empty());
    layers.insert(manifest(&path("scratched"))["layers"][0].to_string());
    let digest = sha256(&std::fs::read(&image.qcow2).or_fail("the image"));
    let checked = |digest: &str, name: &str| {
        let program = pack().args(["--checksum", digest, "--scratch"]).arg(path("scratch"));
        program.arg(&image.qcow2).arg(into("oci", &path(name))).run()
    };
    checked(&digest, "checked").assert_success("a right checksum");
    layers.insert(manifest(&path("checked"))["layers"][0].to_string());
    assert_eq!(layers.len(), 1);
    checked(&sha256(b"other"), "wrong").assert_failure(6, "checksum mismatch");
    assert!(!path("wrong").exists());
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
    const PLACES: [u64; 3] = [5 << 20, 50 << 30, (100 << 30) - 4096];
    let folder = tempfile::tempdir().or_fail("a folder");
    let source = folder.path().join("source");
    let file = File::create(&source).or_fail("a file");
    file.set_len(100 << 30).or_fail("a large file");
    for place in PLACES {
        file.write_all_at(&[7; 4096], place).or_fail("some data");
    }
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
    for transport in ["oci", "oci-archive"] {
        let target = into(transport, &path(transport));
        succeed(pack().arg(path("raw")).arg(&target), transport);
        let contents = || -> Vec<_> {
            let files = files_below(folder.path());
            files.into_iter().map(|file| (std::fs::read(&file).or_fail("a file"), file)).collect()
        };
        let before = contents();
        pack()
            .arg(path("other"))
            .arg(&target)
            .run()
            .assert_failure(7, "file exists: pass --force to replace it");
        pack()
            .arg("--force")
            .arg(path("nothing"))
            .arg(&target)
            .run()
            .assert_failure(3, "no such file");
        assert!(contents() == before, "{transport}");
        succeed(pack().arg("--force").arg(path("other")).arg(&target), transport);
        let layer = sha256(&std::fs::read(path("other")).or_fail("it"));
        assert_ne!(layer, sha256(&std::fs::read(path("raw")).or_fail("it")));
        assert!(contents() != before);
        assert_eq!(contents().len(), before.len(), "{transport}: old blobs are gone");
    }
    assert_layer(&path("oci"), &manifest(&path("oci"))["layers"][0], &path("other"), "replaced");

    // A folder with other files is nobody's layout, not even by force.
    std::fs::create_dir(path("full")).or_fail("a folder");
    std::fs::write(path("full/letter"), "precious").or_fail("a file");
    for option in [&["--force"][..], &[]] {
        let program =
            pack().args(option.iter().copied()).arg(path("raw")).arg(into("oci", &path("full")));
        program
            .run()
            .assert_failure(7, "it contains letter, which does not belong to an OCI layout");
    }
    assert_eq!(files_below(&path("full")).len(), 1);
    let program = pack().arg("--force").arg(path("raw")).arg(into("oci-archive", &path("raw")));
    program.run().assert_failure(7, "it is the source");
    assert!(std::fs::read(path("raw")).or_fail("it") == disk::content(1, 3 * MIB));
}

#[test]
#[ignore = "root: mounts"]
fn a_full_disk_leaves_nothing() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let source = folder.path().join("raw");
    std::fs::write(&source, disk::content(1, 8 * MIB)).or_fail("a disk");
    let memory = folder.path().join("memory");
    std::fs::create_dir(&memory).or_fail("a folder");
    let _mounted = Tmpfs::on(&memory, 2 * MIB);
    for transport in ["oci", "oci-archive"] {
        let program = pack().arg(&source).arg(into(transport, &memory.join("target")));
        program.run().assert_failure(5, "no space left on device");
        assert_eq!(std::fs::read_dir(&memory).or_fail("the folder").count(), 0, "{transport}");
    }
}
