//! What `pack` leaves alone at its target, and what it reads from a web server.

use std::os::unix::fs::symlink;
use std::path::Path;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::origin::{Origin, Script};

use super::{MIB, assert_layer, files_below, into, manifest, pack, succeed};

/// Writes a file that belongs to somebody else, in place of a blob.
fn write_foreign(layout: &Path, digit: &str) -> std::path::PathBuf {
    let folder = layout.join("blobs/sha256");
    std::fs::create_dir_all(&folder).or_fail("a folder");
    let path = folder.join(digit.repeat(64));
    std::fs::write(&path, "precious").or_fail("a blob");
    path
}

#[test]
fn blobs_of_others_stay() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("raw"), disk::content(1, MIB)).or_fail("a disk");
    std::fs::write(path("other"), disk::content(2, MIB)).or_fail("a disk");
    let packing = |source: &str, options: &[&str], target: &str| {
        let program = pack().args(options.iter().copied());
        program.arg(path(source)).arg(into("oci", &path(target)))
    };

    // Without an index it is nobody's layout, not even by force. The same is true of other files.
    std::fs::create_dir(path("letters")).or_fail("a folder");
    std::fs::write(path("letters/letter"), "precious").or_fail("a file");
    for (target, foreign, sentence) in [
        (
            "full",
            write_foreign(&path("full"), "a"),
            "neither empty nor a complete OCI layout; pass an empty or a new directory",
        ),
        (
            "letters",
            path("letters/letter"),
            "it contains letter, which does not belong to an OCI layout",
        ),
    ] {
        for options in [&["--force"][..], &[]] {
            packing("raw", options, target).run().assert_failure(7, sentence);
        }
        assert_eq!(files_below(&path(target)).into_iter().collect::<Vec<_>>(), [foreign]);
    }

    succeed(packing("raw", &[], "layout"), "a new layout");
    let foreign = write_foreign(&path("layout"), "b");
    let before = files_below(&path("layout"));
    succeed(packing("other", &["--force"], "layout"), "a replaced layout");
    assert!(foreign.exists());
    let after = files_below(&path("layout"));
    assert_eq!(after.len(), before.len());
    assert_eq!(after.difference(&before).count(), 2, "the layer and the manifest are new");

    // What a killed job has listed is removed, and nothing else.
    let (listed, other) =
        (write_foreign(&path("killed"), "c"), write_foreign(&path("killed"), "d"));
    let list = format!("{}\n../../raw\n{}", "c".repeat(64), "d".repeat(63));
    std::fs::write(path("killed/.cdi-importer-pack.blobs"), list).or_fail("a list");
    succeed(packing("raw", &[], "killed"), "after a kill");
    assert!(!listed.exists() && other.exists() && path("raw").exists());
    assert_eq!(files_below(&path("killed")).len(), 5 + 1);
}

#[test]
fn links_among_the_blobs_are_not_followed() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("raw"), disk::content(1, MIB)).or_fail("a disk");
    for linked in ["blobs", "blobs/sha256"] {
        let layout = path("layout");
        succeed(pack().arg(path("raw")).arg(into("oci", &layout)), linked);
        std::fs::rename(layout.join(linked), path("elsewhere")).or_fail("a rename");
        symlink(path("elsewhere"), layout.join(linked)).or_fail("a link");
        let before = files_below(&path("elsewhere"));
        let program = pack().arg("--force").arg(path("raw")).arg(into("oci", &layout));
        program.run().assert_failure(7, "it is a symbolic link; pass an empty or a new directory");
        assert_eq!(files_below(&path("elsewhere")), before, "{linked}");
        for name in ["elsewhere", "layout"] {
            std::fs::remove_dir_all(path(name)).or_fail(name);
        }
    }
}

#[test]
#[ignore = "tools: zstd"]
fn a_layer_of_an_export_on_a_web_server_is_packed() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("raw"), disk::content(1, MIB)).or_fail("a disk");
    std::fs::write(path("data"), disk::content(2, MIB)).or_fail("a disk");
    let other = format!("data={}", path("data").display());
    let export = into("oci-archive", &path("export.tar"));
    succeed(pack().args(["--disk", &other]).arg(path("raw")).arg(&export), "an export");
    let tar = std::fs::read(path("export.tar")).or_fail("the export");
    let origin = Origin::start(Script::new(tar)).or_fail("an origin");
    let url = origin.url("/export.oci.tar");
    let layout = path("layout");
    succeed(pack().args(["--layer", "data", &url]).arg(into("oci", &layout)), "a layer");
    assert_layer(&layout, &manifest(&layout)["layers"][0], &path("data"), "the layer");
    let program = pack().arg(&url).arg(into("oci", &path("several")));
    program.run().assert_failure(3, "the artifact has several disks");
}
