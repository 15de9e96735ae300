//! Every kind of qcow2 image, by every route, to every kind of target: the disk is exactly the
//! one that `qemu-img convert` makes, with no more writes and no more memory than documented.

use std::path::Path;

use crate::formats::check::{Known, ROUTES, Route, Target};
use testkit::cases::{Named, check_all, sample};
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Image, Spec};
use testkit::tmpfs::fast_folder;

/// Largest disk that is imported to a device. A device is filled with dirt first, which takes
/// longer than all the rest if it is large.
const MOST_DEVICE_BYTES: u64 = 128 << 20;

/// Builds each image once and imports it by one route to a file and by the other to a device. The
/// next image changes them.
fn check_images(specs: Vec<Spec>) {
    let cases: Vec<_> =
        specs.into_iter().enumerate().map(|case| Named(case.1.to_string(), case)).collect();
    check_all(cases, |Named(_, (index, spec))| {
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

/// One case is documented to need a scratch directory: private data of snapshots in clusters of
/// 2 MiB exceeds the memory for parked clusters, and belongs nowhere in the target.
fn import(folder: &Path, image: &Image, spec: &Spec, route: Route, target: Target) {
    let known = Known::built(image);
    let needs_scratch = matches!(route, Route::OnePass)
        && spec.content == Content::Snapshots
        && spec.cluster_size == 2 << 20;
    if !needs_scratch {
        return known.import(route, target);
    }
    let scratch = folder.join("scratch");
    std::fs::create_dir(&scratch).or_fail("a scratch directory");
    known.import_with(&image.qcow2, route, target, |it| it.arg("--scratch").arg(&scratch));
    let left = scratch.read_dir().or_fail("the scratch directory").count();
    assert_eq!(left, 0, "{route:?} to {target:?}: files left in the scratch directory");
}

/// Every valid combination of version, cluster size, compression, extended L2 entries and content,
/// and resized images, whose L1 table is at the end.
#[test]
#[ignore = "slow: 13 s of CPU time"]
fn the_acceptance_matrix_is_identical_to_qemu_img() {
    let mut specs = Spec::matrix();
    for compression in [Compression::Plain, Compression::Zlib, Compression::Zstd] {
        for (cluster_size, grown) in [(4 << 10, 60 << 20), (64 << 10, 700 << 20)] {
            for content in [Content::Sparse, Content::RandomOrder] {
                let spec = Spec { compression, cluster_size, ..Spec::new(content) };
                specs.push(Spec { resized_to: Some(grown), ..spec });
            }
        }
        // Data spread over many tables.
        let extended_l2 = compression != Compression::Zlib;
        let large = Spec { compression, extended_l2, ..Spec::new(Content::RandomOrder) };
        specs.push(Spec { virtual_size: (6 << 30) + 512, ..large });
    }
    check_images(sample(specs, 50));
}

/// Refcounts of any width and state, preallocated clusters without data, an L1 table at the end,
/// and disks of odd sizes.
#[test]
#[ignore = "root: loop devices"]
fn special_images_are_identical_to_qemu_img() {
    let random = || Spec::new(Content::RandomOrder);
    let mut specs: Vec<Spec> =
        [1, 2, 4, 8, 32, 64].map(|bits| Spec { refcount_bits: Some(bits), ..random() }).into();
    specs.push(Spec { lazy_refcounts: true, ..Spec::new(Content::Sparse) });
    specs.push(Spec { lazy_refcounts: true, dirty: true, ..random() });
    for mode in ["metadata", "falloc", "full"] {
        let spec = Spec { preallocation: Some(mode), ..random() };
        specs.extend([Spec { extended_l2: true, ..spec.clone() }, spec]);
    }
    specs.push(Spec { resized_to: Some(700 << 20), ..random() });
    for virtual_size in [512, 1024, (1 << 20) - 512, 1 << 20, (1 << 20) + 512] {
        for compression in [Compression::Plain, Compression::Zlib] {
            specs.push(Spec { virtual_size, compression, ..Spec::new(Content::Dense) });
        }
    }
    for virtual_size in [0, 5 << 20] {
        specs.push(Spec { virtual_size, ..Spec::new(Content::Empty) });
    }
    check_images(specs);
}
