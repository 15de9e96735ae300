//! Every kind of qcow2 image, by every route, to every kind of target: the disk is exactly the
//! one that `qemu-img convert` makes, with no more writes and no more memory than documented.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::formats::check::{Known, ROUTES, Route, Target};
use testkit::cases::check_all;
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Image, Spec};
use testkit::process::Program;
use testkit::tmpfs::fast_folder;

struct Case(usize, Spec);

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1.fmt(f)
    }
}

/// Largest disk that is imported to a device. A device is filled with dirt first, which takes
/// longer than all the rest if it is large.
const MOST_DEVICE_BYTES: u64 = 128 << 20;

/// Builds each image once and imports it by one route to a file and by the other to a device. The
/// next image changes them.
fn check_images(specs: Vec<Spec>) {
    let cases = specs.into_iter().enumerate().map(|(index, spec)| Case(index, spec));
    check_all(cases, |Case(index, spec)| {
        let folder = fast_folder();
        let image = spec.build(folder.path(), "image");
        let sector_size = if index % 4 < 2 { 512 } else { 4096 };
        for (number, route) in ROUTES.into_iter().enumerate() {
            let is_device = (index + number) % 2 == 0 && image.virtual_size <= MOST_DEVICE_BYTES;
            let target = if is_device { Target::Device(sector_size) } else { Target::File };
            import(folder.path(), &image, spec, route, target);
        }
    });
}

fn import(folder: &Path, image: &Image, spec: &Spec, route: Route, target: Target) {
    let known = Known::built(image);
    match scratch(folder, spec, route) {
        None => known.import(route, target),
        Some(scratch) => {
            let adjust = |program: Program| program.arg("--scratch").arg(&scratch);
            known.import_with(&image.qcow2, route, target, adjust);
            let left = scratch.read_dir().or_fail("the scratch directory").count();
            assert_eq!(left, 0, "{route:?} to {target:?}: files left in the scratch directory");
        }
    }
}

/// Creates a scratch directory for the one case of the matrix that is documented to need one:
/// private data of snapshots in clusters of 2 MiB exceeds the memory for parked clusters, and
/// belongs nowhere in the target.
fn scratch(folder: &Path, spec: &Spec, route: Route) -> Option<PathBuf> {
    let needed = matches!(route, Route::OnePass)
        && spec.content == Content::Snapshots
        && spec.cluster_size == 2 << 20;
    needed.then(|| {
        let scratch = folder.join("scratch");
        std::fs::create_dir_all(&scratch).or_fail("a scratch directory");
        scratch
    })
}

#[test]
#[ignore = "slow: 36 s of CPU time"]
fn the_acceptance_matrix_is_identical_to_qemu_img() {
    check_images(Spec::matrix());
}

#[test]
#[ignore = "root: loop devices"]
fn refcounts_of_any_width_and_state_do_not_change_the_disk() {
    let mut specs = Vec::new();
    for content in [Content::Sparse, Content::RandomOrder] {
        for refcount_bits in [1, 2, 4, 8, 32, 64] {
            specs.push(Spec { refcount_bits: Some(refcount_bits), ..Spec::new(content) });
        }
        specs.push(Spec { lazy_refcounts: true, ..Spec::new(content) });
        specs.push(Spec { lazy_refcounts: true, dirty: true, ..Spec::new(content) });
    }
    check_images(specs);
}

#[test]
#[ignore = "root: loop devices"]
fn preallocated_clusters_without_data_are_zero() {
    let modes = ["metadata", "falloc", "full"];
    check_images(
        modes
            .into_iter()
            .flat_map(|mode| {
                let spec = Spec { preallocation: Some(mode), ..Spec::new(Content::RandomOrder) };
                [Spec { extended_l2: true, ..spec.clone() }, spec]
            })
            .collect(),
    );
}

#[test]
#[ignore = "root: loop devices"]
fn a_resized_image_with_its_l1_table_at_the_end_is_identical() {
    let mut specs = Vec::new();
    for compression in [Compression::Plain, Compression::Zlib, Compression::Zstd] {
        for (cluster_size, grown) in [(4 << 10, 60 << 20), (64 << 10, 700 << 20)] {
            for content in [Content::Sparse, Content::RandomOrder] {
                let spec = Spec { compression, cluster_size, ..Spec::new(content) };
                specs.push(Spec { resized_to: Some(grown), ..spec });
            }
        }
    }
    check_images(specs);
}

#[test]
#[ignore = "root: loop devices"]
fn disks_of_odd_sizes_are_identical() {
    let sizes = [0, 512, 1024, (1 << 20) - 512, 1 << 20, (1 << 20) + 512];
    let mut specs = Vec::new();
    for virtual_size in sizes {
        for compression in [Compression::Plain, Compression::Zlib] {
            let content = if virtual_size == 0 { Content::Empty } else { Content::Dense };
            specs.push(Spec { virtual_size, compression, ..Spec::new(content) });
        }
    }
    specs.push(Spec { virtual_size: 5 << 20, ..Spec::new(Content::Empty) });
    check_images(specs);
}

#[test]
#[ignore = "slow: 5 s of CPU time"]
fn data_spread_over_many_tables_of_a_large_disk_is_identical() {
    let folder = fast_folder();
    let virtual_size = (6 << 30) + 512;
    for (name, compression, extended_l2) in [
        ("plain", Compression::Plain, true),
        ("zlib", Compression::Zlib, false),
        ("zstd", Compression::Zstd, true),
    ] {
        let spec =
            Spec { virtual_size, compression, extended_l2, ..Spec::new(Content::RandomOrder) };
        let image = spec.build(folder.path(), name);
        for route in ROUTES {
            import(folder.path(), &image, &spec, route, Target::File);
        }
    }
}
