//! Every format and subformat that `qemu-img convert -O` writes as one file, combined with
//! contents, routes, compressions and targets.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use testkit::cases::{Named, check_all};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::Subformat;
use testkit::tmpfs::Tmpfs;
use testkit::tools;

use crate::formats::check::{Known, ROUTES, Route, Target};

/// The content of a disk that becomes an image.
#[derive(Debug, Clone, Copy)]
enum Content {
    Sparse,
    Dense,
    /// A size that is not a multiple of any block or grain.
    OddSize,
    Empty,
    OneSector,
    /// More bytes than 32 bits can count.
    Large,
}

const CONTENTS: [Content; 6] = [
    Content::Sparse,
    Content::Dense,
    Content::OddSize,
    Content::Empty,
    Content::OneSector,
    Content::Large,
];

impl Content {
    fn write(self, raw: &Path) {
        let bytes = match self {
            Self::Sparse => disk::sparse_content(1, 24 << 20, 8),
            Self::Dense => disk::content(2, 6 << 20),
            Self::OddSize => disk::sparse_content(3, (9 << 20) + 3 * 512, 4),
            Self::Empty => vec![0; 8 << 20],
            Self::OneSector => disk::content(4, 512),
            Self::Large => return write_large(raw),
        };
        std::fs::write(raw, bytes).or_fail(raw.display());
    }
}

/// Writes data at the beginning, around 2 GiB and 4 GiB, and at the very end.
fn write_large(raw: &Path) {
    const BYTES: u64 = (4 << 30) + (9 << 20) + 512;
    const ISLAND: u64 = 200 << 10;
    let file = File::create(raw).or_fail(raw.display());
    file.set_len(BYTES).or_fail(raw.display());
    let islands = [0, (2 << 30) - ISLAND / 2, (4 << 30) - ISLAND / 2, BYTES - ISLAND];
    for (seed, offset) in (5..).zip(islands) {
        let content = disk::content(seed, ISLAND);
        file.write_all_at(&content, offset).or_fail(raw.display());
    }
}

/// Most space that the images, disks and devices of concurrent cases take.
const WORK_BYTES: u64 = 2 << 30;

/// Calls `check` with a number, an image and its disk for every subformat of `format` with each of
/// `contents`.
fn check_cases(format: &str, contents: &[Content], check: impl Fn(usize, &Path, &Known) + Sync) {
    let folder = tempfile::tempdir().or_fail("a folder");
    // In memory, because every disk is synced.
    let _tmpfs = Tmpfs::on(folder.path(), WORK_BYTES);
    let raw = |content| folder.path().join(format!("{content:?}"));
    for content in contents {
        content.write(&raw(*content));
    }
    let mut cases = Vec::new();
    for subformat in Subformat::of(format) {
        for content in contents {
            let name = format!("{subformat}, {content:?}");
            cases.push(Named(name, (cases.len(), subformat, *content)));
        }
    }
    check_all(cases, |Named(_, (index, subformat, content))| {
        let folder = tempfile::tempdir_in(folder.path()).or_fail("a folder for the images");
        let image = folder.path().join("image");
        subformat.write(&raw(*content), &image);
        check(*index, &image, &Known::new(&image, subformat.format));
    });
}

fn check_contents(format: &str) {
    check_cases(format, &CONTENTS, |_, _, known| {
        for route in ROUTES {
            known.import(route, Target::File);
        }
    });
}

/// Imports to devices by both routes, and in each compression by one route to one target.
fn check_envelopes(format: &str) {
    check_cases(format, &[Content::OddSize], |index, image, known| {
        known.import(Route::Ranged, Target::Device(512));
        known.import(Route::OnePass, Target::Device(4096));
        let bytes = std::fs::read(image).or_fail("the image");
        let programs: [(&str, &[&str]); 3] =
            [("gzip", &["-1c"]), ("xz", &["-0c"]), ("zstd", &["-1c"])];
        for (number, (program, args)) in programs.into_iter().enumerate() {
            let object = image.with_extension(program);
            std::fs::write(&object, tools::filter(program, args, &bytes)).or_fail(program);
            let targets = [Target::File, Target::Device(512), Target::Device(4096)];
            let (route, target) = (ROUTES[(index + number) % 2], targets[(index + number) % 3]);
            known.import_object(&object, route, target);
        }
    });
}

/// A module of tests for each format.
macro_rules! matrices {
    ($($format:ident)*) => { $(
        mod $format {
            #[test]
            #[ignore = "slow: 3 s of CPU time for each format"]
            fn every_content_by_every_route_is_identical_to_qemu_img() {
                super::check_contents(stringify!($format));
            }

            #[test]
            #[ignore = "root: loop devices"]
            fn every_subformat_in_every_compression_is_identical_on_files_and_devices() {
                super::check_envelopes(stringify!($format));
            }
        }
    )* };
}

matrices! { qcow2 vmdk vdi vpc vhdx }
