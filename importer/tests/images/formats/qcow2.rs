//! qcow2 images that qemu-img calls clean but would not write: clusters with several references,
//! with tables and refcounts behind them.

use std::path::Path;

use testkit::fail::OrFail;
use testkit::images::qcow2::{CORRUPT, DIRTY, Guest, Qcow2};
use testkit::tools;

use super::check::{Known, ROUTES, Route, Target, importer};

/// log2 of the cluster size; an L2 table maps 64 clusters of that size.
const CLUSTER_BITS: u32 = 9;

/// Writes the image, and asserts that `qemu-img check` calls it clean.
fn write(spec: &Qcow2, image: &Path) {
    std::fs::write(image, spec.build().image).or_fail("write the image");
    let words = ["check", "-q", "-f", "qcow2"].map(AsRef::as_ref);
    tools::run("qemu-img", words.into_iter().chain([image.as_os_str()]));
}

/// Four tables that share a data cluster and a compressed one, with several references in a
/// table, and that have others of their own.
fn entangled() -> Vec<Guest> {
    let mut guest = vec![Guest::Hole; 4 * 64];
    for (number, table) in (10..).zip(guest.chunks_mut(64)) {
        table[3] = Guest::Data(1);
        table[4] = Guest::Data(number);
        table[5] = Guest::Data(1);
        table[6] = Guest::Compressed(2);
        table[7] = Guest::Compressed(number);
        table[8] = Guest::ZeroAllocated(1);
    }
    guest
}

/// Sort keys of parts: refcount table and block, L1 table, snapshot table, four L2 tables, data.
const TABLES_BETWEEN: [u16; 14] = [0, 0, 0, 0, 0, 3, 4, 5, 1, 6, 2, 7, 2, 8];
const ALL_TABLES_LAST: [u16; 14] = [9, 9, 9, 9, 9, 8, 7, 6, 0, 0, 0, 0, 0, 0];
const REFCOUNTS_LAST: [u16; 14] = [9, 9, 0, 0, 0, 3, 4, 5, 1, 1, 1, 1, 1, 1];

#[test]
#[ignore = "root: rights of root"]
fn clusters_with_several_references_are_read_by_both_routes() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = folder.path().join("image.qcow2");
    for order in [TABLES_BETWEEN, ALL_TABLES_LAST, REFCOUNTS_LAST] {
        for (refcount_order, flags) in [(3, 0), (4, 0), (6, 0), (4, DIRTY), (4, CORRUPT)] {
            let spec = Qcow2 {
                refcount_order,
                flags,
                order: order.into(),
                ..Qcow2::new(CLUSTER_BITS, entangled())
            };
            write(&spec, &image);
            super::check::check(&image, "qcow2");
        }
    }
}

#[test]
#[ignore = "root: rights of root"]
fn images_that_need_a_second_pass_are_refused_for_that_reason() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = folder.path().join("image.qcow2");
    // With a snapshot, a refcount of 2 does not show whether the disk itself has two references.
    let mut guest = vec![Guest::Hole; 65];
    (guest[0], guest[64]) = (Guest::Data(1), Guest::Data(1));
    let spec = Qcow2 {
        snapshots: vec![vec![Guest::Data(2)]],
        // The second table is the last part but one; the cluster of both tables comes before it.
        order: vec![0, 0, 0, 0, 0, 0, 3, 0, 1, 4],
        ..Qcow2::new(CLUSTER_BITS, guest)
    };
    write(&spec, &image);
    Known::new(&image, "qcow2").import(Route::Ranged, Target::File);
    let target = folder.path().join("disk.img");
    let finished = importer(&image, Route::OnePass, &target).run();
    finished.assert_failure(4, "cannot be read in one pass");
    assert!(!finished.stderr.contains("refcount"), "{}", finished.stderr);
    assert!(!target.exists());
}

#[test]
#[ignore = "tools: qemu-img"]
fn tables_with_several_references_are_refused_but_not_called_corrupt() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = folder.path().join("image.qcow2");
    // The builder stores equal tables once.
    let mut guest = vec![Guest::Hole; 128];
    (guest[0], guest[64]) = (Guest::Data(1), Guest::Data(1));
    write(&Qcow2::new(CLUSTER_BITS, guest), &image);
    for route in ROUTES {
        let target = folder.path().join("disk.img");
        let finished = importer(&image, route, &target).run();
        finished.assert_failure(4, "two entries share a table");
        assert!(!finished.stderr.contains("corrupt"), "{}", finished.stderr);
    }
}
