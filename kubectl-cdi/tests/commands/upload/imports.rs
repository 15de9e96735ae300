//! Imports: sizes of disks that the client inspects, and sources in the form that CDI's API and
//! the importer accept.

use std::path::Path;

use rustix::process::Signal;
use testkit::certs::Authority;
use testkit::disk;
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::objects::{ACCESS_KEY, BUCKET, Kind, SECRET_KEY, Store};
use testkit::oci::{Artifact, ArtifactLayer, Compression, Image, write_artifacts};
use testkit::origin::{Origin, Ranges, Script};
use testkit::process::Program;
use testkit::tools;
use testkit::upload_proxy::beside;

use crate::upload::{BINARY, NAMESPACE, api};

/// Returns an import from `url` with these options.
fn import(url: &str, target: &str, options: &[&str]) -> Program {
    Program::new(BINARY)
        .args(["import", url, target])
        .args(options.iter().copied())
        .args(["--namespace", NAMESPACE, "--kubeconfig"])
        .arg(api().cluster.administrator())
}

/// Runs an import of a source that the client does not inspect.
fn import_for_cdi(url: &str, target: &str, more: &[&str]) {
    let options = [&["--size", "8Mi", "--no-wait"], more].concat();
    import(url, target, &options).run().assert_success("an import");
}

/// Returns an empty image of 64 MiB.
fn qcow2(folder: &Path, options: &[&str]) -> Vec<u8> {
    let path = folder.join("image.qcow2");
    let words = [&["create", "-q", "-f", "qcow2"], options].concat();
    let words =
        words.into_iter().map(Into::into).chain([path.clone().into_os_string(), "64M".into()]);
    tools::run("qemu-img", words);
    std::fs::read(path).or_fail("an image")
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_volume_has_the_size_of_the_disk_at_the_url() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = qcow2(folder.path(), &[]);
    let packed = tools::filter("gzip", ["-1c"], &image);
    let raw = disk::content(1, (3 << 20) - 512);
    for (body, ranges, size, formatted) in [
        (image.clone(), Ranges::Served, "64Mi", "79Mi"),
        (image, Ranges::Refused, "64Mi", "79Mi"),
        (packed, Ranges::Served, "64Mi", "79Mi"),
        (raw, Ranges::Refused, "3Mi", "12Mi"),
    ] {
        let mut script = Script::new(body);
        script.ranges = ranges;
        let origin = Origin::start(script).or_fail("an HTTP server");
        // With space for a file system, as for an upload (see `filesystems`).
        for (mode, size) in [("Block", size), ("Filesystem", formatted)] {
            let options = ["--dry-run", "server", "-o", "yaml", "--volume-mode", mode];
            let finished = import(&origin.url("/image"), "dv/imported", &options).run();
            finished.assert_success("a dry run");
            let line = format!("storage: {size}");
            assert!(finished.stdout.contains(&line), "{ranges:?} {mode}: {}", finished.stdout);
        }
    }
}

#[test]
#[ignore = "server: docker-registry"]
fn a_volume_has_the_size_of_the_disk_in_a_registry() {
    let authority = Authority::new().or_fail("an authority");
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = Image::of_disk(&qcow2(folder.path(), &[]), Compression::Gzip);
    let setup = Setup { authority: Some(&authority), ..Setup::default() };
    let registry = DockerRegistry::start_with(setup, &[("vms/disk:1", &[image])]);
    let roots = folder.path().join("roots.pem");
    std::fs::write(&roots, authority.pem()).or_fail("roots");
    let import = |url: &str| {
        Program::new(BINARY)
            .args(["import", url, "dv/imported", "--dry-run", "client", "--volume-mode", "Block"])
            .env("SSL_CERT_FILE", &roots)
            .run()
    };
    let finished = import(&registry.reference("vms/disk:1"));
    finished.assert_success("a dry run");
    assert!(finished.stdout.contains("storage: 64Mi"), "{}", finished.stdout);
    let finished = import(&registry.reference("vms/none:1"));
    finished.assert_failure(3, "image not found: ");
    assert!(!finished.stderr.contains("--size"), "{}", finished.stderr);

    let layout = folder.path().join("layout");
    let layers = [("root", 1), ("data", 2)];
    let layers = layers.map(|(name, byte)| ArtifactLayer::kubevirt_disk(name, &[byte; 512]));
    write_artifacts(&layout, &[Artifact::kubevirt_export(layers.into())]);
    let source = format!("oci:{}", layout.display());
    registry.push_layout("vms/machine:1", &source, &["--preserve-digests"]);
    let finished = import(&registry.reference("vms/machine:1"));
    finished.assert_failure(4, "several disks: root, data; a DataVolume cannot choose one: ");
}

#[test]
#[ignore = "server: Kubernetes"]
fn after_an_interrupt_the_user_learns_that_the_import_continues() {
    let cluster = &api().cluster;
    let import = |options: &[&str]| import("https://example.org/d", "dv/followed", options);
    let running = import(&["--size", "1Gi", "--progress", "plain"]).start();
    running.wait_for_line("waiting for CDI to create the claim");
    let status = serde_json::json!({"phase": "ImportInProgress", "progress": "45.20%"});
    cluster.set_data_volume_status(NAMESPACE, "followed", &status);
    running.wait_for_line("ImportInProgress 45.20 %");
    running.signal(Signal::INT);
    let finished = running.wait();
    finished.assert_failure(
        130,
        "stopped by SIGINT; the import continues in the cluster; show its progress with: ",
    );
    let command = "kubectl cdi status dv/followed --kubeconfig /";
    assert!(finished.stderr.contains(command), "{}", finished.stderr);

    // For the progress bar and for programs, the percentage is converted to bytes.
    let finished = import(&["--no-create", "--progress", "json", "--timeout", "3s"]).run();
    finished.assert_failure(7, "dv/followed is not ready after 3 s: ImportInProgress 45.20 %");
    let part = r#""image_bytes":485331304,"image_total":1073741824"#;
    assert!(finished.stdout.contains(part), "{}", finished.stdout);
}

#[test]
#[ignore = "server: Kubernetes, object stores"]
fn the_importer_reads_an_s3_object_from_the_url_that_cdi_accepts() {
    let store = Store::start(Kind::S3s);
    let content = disk::content(7, 8 << 20);
    let endpoint = format!("http://{}", store.address());
    for (number, (key, address)) in [
        ("disk.img", "s3://images/disk.img"),
        ("a dir/\u{fc}n\u{ef} +%&name.img", "s3://images/a dir/\u{fc}n\u{ef} +%&name.img"),
        ("a b?.img", "s3://images/a%20b%3F.img"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(BUCKET, "images");
        store.put(key, &content);
        let name = format!("object-{number}");
        let words = ["--endpoint", &endpoint, "--secret", "keys"];
        import_for_cdi(address, &format!("dv/{name}"), &words);
        let source = &api().cluster.data_volume(NAMESPACE, &name)["spec"]["source"]["s3"];
        assert_eq!(source["secretRef"], "keys");
        let url = source["url"].as_str().or_fail("a URL");
        assert!(url.starts_with(&format!("{endpoint}/images/")), "{url}");

        // The pod that CDI creates for that.
        let root = tempfile::tempdir().or_fail("a folder");
        for folder in ["data", "dev", "tmp"] {
            std::fs::create_dir(root.path().join(folder)).or_fail(folder);
        }
        let [metrics] = testkit::ports::free();
        Program::new(beside(BINARY, "cdi-importer"))
            .env("CDI_WORKERS_TEST_ROOT", root.path())
            .env("CDI_WORKERS_TEST_METRICS_ADDR", metrics.to_string())
            .env("IMPORTER_SOURCE", "s3")
            .env("IMPORTER_ENDPOINT", url)
            .env("IMPORTER_ACCESS_KEY_ID", ACCESS_KEY)
            .env("IMPORTER_SECRET_KEY", SECRET_KEY)
            .env("IMPORTER_CONTENTTYPE", "kubevirt")
            .env("PREALLOCATION", "false")
            .run()
            .assert_success("the importer");
        let imported = std::fs::read(root.path().join("data/disk.img")).or_fail("a disk");
        assert!(imported == content, "the disk differs");
    }
}

#[test]
#[ignore = "server: Kubernetes"]
fn sources_have_the_form_that_cdi_accepts() {
    for (number, (address, kind, url)) in [
        ("s3://images/a/disk.img", "s3", "https://s3.us-east-1.amazonaws.com/images/a/disk.img"),
        ("gs://images/a/disk.img", "gcs", "gs://images/a/disk.img"),
        ("docker://example.org/disk:1", "registry", "docker://example.org/disk:1"),
        ("https://example.org/a%20disk", "http", "https://example.org/a%20disk"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("source-{number}");
        import_for_cdi(address, &format!("dv/{name}"), &[]);
        let source = &api().cluster.data_volume(NAMESPACE, &name)["spec"]["source"];
        assert_eq!(*source, serde_json::json!({kind: {"url": url}}));
        import_for_cdi(address, &format!("pvc/{name}"), &[]);
        let path = format!("/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/{name}");
        let annotations = &api().cluster.get(&path)["metadata"]["annotations"];
        assert_eq!(annotations["cdi.kubevirt.io/storage.import.source"], kind);
        assert_eq!(annotations["cdi.kubevirt.io/storage.import.endpoint"], url);
    }
}
