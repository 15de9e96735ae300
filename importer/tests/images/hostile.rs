//! Malicious images: each is refused in bounded time and memory, or read as by qemu-img.

mod patch;

use std::fmt;
use std::path::Path;

use crate::formats::check::{ROUTES, Route, importer, refused};
use patch::{Corpus, Patch};
use testkit::cases::check_all;
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Spec};
use testkit::process::{Finished, Program};
use testkit::tmpfs::fast_folder;
use testkit::{disk, tools};

/// Valid images of every kind: plain, zlib and zstd clusters, extended L2 entries, snapshots.
fn bases(folder: &Path) -> Vec<Corpus> {
    let small = |content| Spec { cluster_size: 4096, virtual_size: 2 << 20, ..Spec::new(content) };
    let specs = [
        ("plain", small(Content::Sparse)),
        ("zlib", Spec { compression: Compression::Zlib, ..small(Content::RandomOrder) }),
        ("zstd", Spec { compression: Compression::Zstd, ..small(Content::RandomOrder) }),
        (
            "extended",
            Spec { cluster_size: 16 << 10, extended_l2: true, ..small(Content::ZeroClusters) },
        ),
        ("snapshots", small(Content::Snapshots)),
    ];
    specs.map(|(name, spec)| Corpus::new(name, spec.build(folder, name))).into()
}

/// A patch and the routes to try it by.
struct Case {
    patch: Patch,
    routes: Vec<Route>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.patch.fmt(f)
    }
}

/// Assigns one route to each patch, by the number of its bits. The routes change places from base
/// to base, so that a patch that two bases have in common is tried by both routes.
fn routes_in_turn(base: usize, patches: Vec<Patch>) -> impl Iterator<Item = Case> {
    patches.into_iter().map(move |patch| Case {
        routes: vec![ROUTES[(base + patch.ones()) % ROUTES.len()]],
        patch,
    })
}

/// Imports the patched image by each route of the case, and checks the result.
fn check(base: &Corpus, Case { patch, routes }: &Case) {
    let folder = fast_folder();
    let image = folder.path().join("image.qcow2");
    let bytes = patch.apply(base.bytes());
    std::fs::write(&image, &bytes).or_fail("write the image");
    let target = folder.path().join("disk.img");
    for route in routes {
        let finished = importer(&image, *route, &target).run();
        let route = format!("{route:?}");
        if finished.code() == 0 {
            check_success(&route, base, &image, &target);
            std::fs::remove_file(&target).or_fail("remove the target");
        } else {
            check_refusal(&route, &finished, &target);
        }
    }
}

/// Compares the disk with that of qemu-img. Where qemu-img refuses the image (for a reference
/// count that we need not read), the expected disk is that of the image before the patch.
fn check_success(route: &str, base: &Corpus, image: &Path, target: &Path) {
    let raw = image.with_extension("raw");
    let expected = if tools::qemu_converts("qcow2", image, &raw) { &raw } else { &base.image.raw };
    let length = |path: &Path| path.metadata().or_fail(path.display()).len();
    assert_eq!(length(target), length(expected), "{route}: length of the disk");
    disk::assert_same(target, expected, length(expected), route);
}

fn check_refusal(route: &str, finished: &Finished, target: &Path) {
    // 4: corrupt or refused; 5: a disk of this size fits nowhere.
    let typed = [4, 5].contains(&finished.code()) && !finished.crashed();
    assert!(
        typed && !finished.stderr.trim().is_empty(),
        "{route}: exit code {}: {finished:?}",
        finished.code()
    );
    assert!(!target.exists(), "{route}: the target of a refused image was left behind");
}

#[test]
#[ignore = "slow: 19 s of CPU time"]
fn every_header_field_survives_every_boundary_value() {
    let folder = fast_folder();
    // The bases differ in what is read after the header: one of each entry width is enough.
    let bases = bases(folder.path());
    let bases = bases.iter().filter(|base| ["zlib", "extended"].contains(&base.name));
    for (index, base) in bases.enumerate() {
        check_all(routes_in_turn(index, patch::header_fields(base)), |case| {
            check(base, case);
        });
    }
}

#[test]
#[ignore = "slow: 17 s of CPU time"]
fn every_kind_of_table_entry_survives_every_boundary_value() {
    let folder = fast_folder();
    // The entries of the others are like those of these three.
    let bases = bases(folder.path());
    let bases = bases.iter().filter(|base| ["zlib", "extended", "snapshots"].contains(&base.name));
    for (index, base) in bases.enumerate() {
        check_all(routes_in_turn(index, patch::table_entries(base)), |case| {
            check(base, case);
        });
    }
}

#[test]
#[ignore = "slow: 9 s of CPU time"]
fn noise_in_metadata_and_data_is_refused_or_read_as_by_qemu() {
    let folder = fast_folder();
    for (seed, base) in (0..).zip(&bases(folder.path())) {
        let cases = patch::noise(base, seed, 30)
            .into_iter()
            .map(|patch| Case { patch, routes: ROUTES.into() });
        check_all(cases, |case| check(base, case));
    }
}

/// Patches one field of a plain image, and asserts that it is refused with this sentence.
fn refused_with(offset: usize, value: &[u8], sentence: &str) {
    let folder = fast_folder();
    let image = Spec::new(Content::Sparse).build(folder.path(), "image");
    let mut bytes = std::fs::read(&image.qcow2).or_fail("the image");
    bytes[offset..offset + value.len()].copy_from_slice(value);
    std::fs::write(&image.qcow2, bytes).or_fail("the image");
    refused(&image.qcow2, sentence);
}

#[test]
#[ignore = "tools: qemu-img"]
fn an_oversized_l1_table_is_refused() {
    refused_with(36, &u32::MAX.to_be_bytes(), "L1 size too big");
}

#[test]
#[ignore = "tools: qemu-img"]
fn incompatible_features_are_refused_by_name() {
    refused_with(72, &(1_u64 << 63).to_be_bytes(), "unsupported incompatible feature");
    refused_with(72, &(1_u64 << 2).to_be_bytes(), "external data file");
    refused_with(32, &1_u32.to_be_bytes(), "encrypted");
    refused_with(32, &2_u32.to_be_bytes(), "encrypted");
}

/// Patches one field of an image, and asserts that it is imported with `warning` in the log.
fn accepted_with(offset: usize, value: &[u8], warning: &str) {
    let folder = fast_folder();
    let image = Spec::new(Content::Sparse).build(folder.path(), "image");
    let mut bytes = std::fs::read(&image.qcow2).or_fail("the image");
    bytes[offset..offset + value.len()].copy_from_slice(value);
    let target = folder.path().join("disk.img");
    let program = Program::new(crate::BINARY).args(["import", "-"]).arg(&target);
    let finished = program.stdin_bytes(bytes).run();
    finished.assert_success(warning);
    assert!(finished.stderr.contains(warning), "no warning {warning:?} in {:?}", finished.stderr);
    disk::assert_same(&target, &image.raw, image.virtual_size, warning);
}

#[test]
#[ignore = "tools: qemu-img"]
fn unknown_compatible_and_autoclear_features_are_ignored() {
    // All bits but the one for a raw external data file, which QEMU refuses without such a file.
    let mut features = [0xFF; 16];
    features[15] &= !2;
    accepted_with(80, &features, "");
    refused_with(88, &2_u64.to_be_bytes(), "external data file");
}

#[test]
#[ignore = "tools: qemu-img"]
fn an_image_marked_corrupt_is_read_as_qemu_reads_it_with_a_warning() {
    accepted_with(72, &(1_u64 << 1).to_be_bytes(), "marked as corrupt");
}

#[test]
#[ignore = "tools: qemu-img"]
fn other_files_are_never_opened() {
    let folder = fast_folder();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("secret.raw"), vec![b's'; 1 << 20]).unwrap();
    let create = |image: &str, options: &[&str]| {
        let words = ["create", "-q", "-f", "qcow2"]
            .iter()
            .chain(options)
            .map(|word| word.to_string().into());
        let words = words.chain([path(image).into_os_string(), "1M".into()]);
        tools::run("qemu-img", words.collect::<Vec<_>>());
    };
    let secret = path("secret.raw").display().to_string();
    create("backing.qcow2", &["-b", &secret, "-F", "raw"]);
    refused(&path("backing.qcow2"), &secret);
    refused(&path("backing.qcow2"), "backing file");
    let data = path("data.raw").display().to_string();
    create("data.qcow2", &["-o", &format!("data_file={data}")]);
    refused(&path("data.qcow2"), "external data file");
}

#[test]
#[ignore = "slow: 2 s of CPU time"]
fn encrypted_images_are_refused_by_name() {
    let folder = fast_folder();
    let image = folder.path().join("image.qcow2");
    let options = "encrypt.format=luks,encrypt.key-secret=key,encrypt.iter-time=10";
    let words = ["create", "-q", "--object", "secret,id=key,data=x", "-f", "qcow2", "-o", options];
    tools::run(
        "qemu-img",
        words.iter().map(AsRef::as_ref).chain([image.as_os_str(), "1M".as_ref()]),
    );
    refused(&image, "encrypted");
}

#[test]
#[ignore = "tools: qemu-img"]
fn other_formats_are_refused_by_name() {
    let folder = fast_folder();
    for format in ["qcow", "qed", "parallels"] {
        let image = folder.path().join("image").with_extension(format);
        let words = ["create", "-q", "-f", format];
        tools::run(
            "qemu-img",
            words.iter().map(AsRef::as_ref).chain([image.as_os_str(), "8M".as_ref()]),
        );
        refused(&image, &format!("the image is in {format} format"));
    }
}
