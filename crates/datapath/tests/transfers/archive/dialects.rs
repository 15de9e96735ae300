//! Peculiarities of particular tar writers, one in each test.

use std::path::Path;

use codec::decode::Codec;
use stream::options::{CompressionLayers, ReadOptions};
use testkit::tools;

use crate::archive::tape::{Fields, Tape, seal};
use crate::archive::{gnu_packs, gnu_unpacks, snapshot, unpack_to, unpack_with};
use crate::common::fast_folder;

/// Unpacks `tar` with our code and with GNU tar, and checks that the results are the same.
#[track_caller]
fn as_gnu_tar(tar: &[u8]) -> std::collections::BTreeMap<std::path::PathBuf, snapshot::Seen> {
    let (ours, theirs) = (fast_folder(), fast_folder());
    assert!(gnu_unpacks(theirs.path(), tar));
    unpack_to(ours.path(), tar).unwrap();
    let seen = snapshot::without_time_of_root(ours.path());
    snapshot::assert_same(&seen, &snapshot::without_time_of_root(theirs.path()), "not as GNU tar");
    seen
}

#[test]
fn an_empty_archive_is_accepted_and_an_empty_body_is_not() {
    for blocks in [2, 20] {
        assert_eq!(as_gnu_tar(&vec![0; 512 * blocks]).len(), 1);
    }
    let report = unpack_to(fast_folder().path(), &[0; 10240]).unwrap();
    assert_eq!((report.entries, report.source_bytes), (0, 10240));
    let error = unpack_to(fast_folder().path(), b"").unwrap_err();
    assert_eq!(error.to_string(), "could not process image header: EOF");
}

#[test]
fn v7_directories_are_recognised_by_their_trailing_slash() {
    let mut directory = Fields::new(0, "d/");
    directory.magic = [0; 8];
    directory.mode = 0o711;
    let seen = as_gnu_tar(&Tape::default().entry(&directory, b"").file("d/f", b"x").end());
    assert_eq!(seen[Path::new("d")].mode, 0o40711);
}

#[test]
fn contiguous_files_are_files_and_volume_labels_are_ignored() {
    let mut fields = Fields::new(b'7', "f");
    fields.size = 3;
    let label = Fields::new(b'V', "label");
    let seen = as_gnu_tar(&Tape::default().entry(&label, b"").entry(&fields, b"abc").end());
    assert_eq!(seen[Path::new("f")].content, b"abc");
}

#[test]
fn sizes_and_times_may_be_base_256() {
    let mut block = Fields::new(b'0', "f").block();
    block[124..136].copy_from_slice(b"\x80\0\0\0\0\0\0\0\0\0\0\x03");
    block[136..148].copy_from_slice(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xf0");
    seal(&mut block);
    let seen = as_gnu_tar(&Tape(block.to_vec()).data(b"abc").end());
    assert_eq!(seen[Path::new("f")].mtime, (-16, 0));
    assert_eq!(seen[Path::new("f")].content, b"abc");
}

/// In some archives of Maven a single block of zeros is followed by other bytes.
#[test]
fn a_single_block_of_zeros_ends_an_archive() {
    let tar = Tape::default().file("f", b"abc").0;
    let behind = Tape::default().file("g", b"abc").end();
    let seen = as_gnu_tar(&[tar, vec![0; 512], behind].concat());
    assert!(!seen.contains_key(Path::new("g")));
}

#[test]
fn directories_of_incremental_archives_have_data() {
    let mut directory = Fields::new(b'D', "d/");
    directory.mode = 0o711;
    directory.size = 4;
    let seen = as_gnu_tar(&Tape::default().entry(&directory, b"Yf\0\0").file("d/f", b"x").end());
    assert_eq!(seen[Path::new("d")].mode, 0o40711);
}

#[test]
fn a_number_may_follow_one_nul() {
    for (field, size) in [(&b"\x000000000003\0"[..12], 3), (&b"\x00\x000000000003"[..12], 0)] {
        let mut block = Fields::new(b'0', "f").block();
        block[124..136].copy_from_slice(field);
        seal(&mut block);
        let seen = as_gnu_tar(&Tape(block.to_vec()).data(&b"abc"[..size]).end());
        assert_eq!(seen[Path::new("f")].content.len(), size);
    }
}

#[test]
fn pax_records_override_headers_and_long_names() {
    let mut long = Fields::new(b'L', "././@LongLink");
    long.size = 5;
    let tar = Tape::default()
        .entry(&long, b"long\0")
        .pax(&[
            ("path", "pax"),
            ("mtime", "12.5"),
            ("size", "3"),
            ("uid", "5"),
            ("SCHILY.dev", "1"),
        ])
        .entry(&Fields::new(b'0', "header"), b"abc")
        .end();
    let seen = as_gnu_tar(&tar);
    assert_eq!(seen[Path::new("pax")].content, b"abc");
    assert_eq!(seen[Path::new("pax")].mtime, (12, 500_000_000));
}

#[test]
fn global_records_apply_until_they_are_replaced() {
    let global = |time: &str| {
        let mut tape = Tape::default().pax(&[("mtime", time), ("comment", "as git does")]);
        let mut block: [u8; 512] = tape.0[..512].try_into().unwrap();
        block[156] = b'g';
        seal(&mut block);
        tape.0[..512].copy_from_slice(&block);
        tape.0
    };
    let file = |name: &str| Tape::default().file(name, b"").0;
    let own = Tape::default().pax(&[("mtime", "9")]).0;
    let tar =
        [global("5"), file("a"), own, file("b"), file("c"), global("7"), file("d"), vec![0; 1024]]
            .concat();
    let seen = as_gnu_tar(&tar);
    let times = ["a", "b", "c", "d"].map(|name| seen[Path::new(name)].mtime.0);
    assert_eq!(times, [5, 9, 5, 7]);
}

#[test]
fn old_sparse_maps_continue_in_further_blocks() {
    let folder = fast_folder();
    let path = folder.path().join("sparse");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    for piece in 0..60 {
        use std::os::unix::fs::FileExt;
        file.write_all_at(&[b'a' + piece % 26; 100], u64::from(piece) * 16384).unwrap();
    }
    for format in
        [&["--format=gnu"][..], &["--format=pax", "--sparse-version=0.0"], &["--format=pax"]]
    {
        let tar = gnu_packs(folder.path(), &[format, &["-S"]].concat(), &["sparse"]);
        assert!(tar.len() < 600_000, "the file is sparse");
        let seen = as_gnu_tar(&tar);
        assert_eq!(seen[Path::new("sparse")].content.len(), 1 << 20);
        let report = unpack_to(fast_folder().path(), &tar).unwrap();
        assert_eq!(report.data_bytes, 1 << 20);
        assert!(report.written_bytes < 1 << 19, "holes must not be written");
    }
}

#[test]
fn a_file_that_is_one_hole_gets_no_blocks() {
    let folder = fast_folder();
    std::fs::File::create(folder.path().join("hole")).unwrap().set_len(1 << 20).unwrap();
    for version in ["0.0", "0.1", "1.0"] {
        let version = format!("--sparse-version={version}");
        let tar = gnu_packs(folder.path(), &["-S", "--format=pax", &version], &["."]);
        let seen = as_gnu_tar(&tar);
        assert_eq!(seen[Path::new("hole")].blocks, 0, "{version}");
    }
    // Stored zeros are written.
    let seen = as_gnu_tar(&Tape::default().file("zeros", &vec![0; 1 << 20]).end());
    assert_eq!(seen[Path::new("zeros")].blocks, (1 << 20) / 512);
}

#[test]
fn bytes_after_the_end_of_the_archive_are_ignored() {
    let tar = [Tape::default().file("f", b"x").end(), b"anything else".to_vec()].concat();
    assert_eq!(as_gnu_tar(&tar).len(), 2);
}

#[test]
#[ignore = "tools: bzip2, xz, zstd"]
fn archives_in_any_compression_are_unpacked() {
    let tar = Tape::default().file("f", b"content").end();
    for program in tools::COMPRESSORS {
        let folder = fast_folder();
        let packed = tools::filter(program, ["-c"], &tar);
        let report = unpack_to(folder.path(), &packed).unwrap();
        assert_eq!(report.layers, [program, "tar"]);
        assert_eq!(report.source_bytes, packed.len() as u64);
        assert_eq!(std::fs::read(folder.path().join("f")).unwrap(), b"content");
    }
    // Snappy is not recognised by content.
    let packed = crate::archive::clones::snappy(&tar);
    unpack_to(fast_folder().path(), &packed).unwrap_err();
    let reading =
        ReadOptions { layers: CompressionLayers::Only(Codec::Snappy), ..ReadOptions::default() };
    let folder = fast_folder();
    let report = unpack_with(folder.path(), &packed, u64::MAX, &reading).unwrap();
    assert_eq!(report.layers, ["snappy", "tar"]);
    assert_eq!(std::fs::read(folder.path().join("f")).unwrap(), b"content");
}

/// Returns a file whose header has these bytes at `at`.
fn patched(at: usize, bytes: &[u8]) -> Tape {
    let mut block = Fields { size: 3, ..Fields::new(b'0', "f") }.block();
    block[at..at + bytes.len()].copy_from_slice(bytes);
    seal(&mut block);
    Tape(block.to_vec()).data(b"abc")
}

#[test]
fn rare_headers_are_understood_as_by_gnu_tar() {
    let tape = Tape::default;
    let sized = |typeflag, name: &str, size| {
        let fields = Fields { size, mode: 0o755, ..Fields::new(typeflag, name) };
        tape().file("f", b"x").entry(&Fields { link: b"f".to_vec(), ..fields }, b"").0
    };
    let long = |typeflag, text: &str| {
        let size = text.len() as u64;
        tape().entry(&Fields { size, ..Fields::new(typeflag, "././@LongLink") }, text.as_bytes())
    };
    let join = |tapes: &[Tape]| tapes.iter().flat_map(|tape| tape.0.clone()).collect::<Vec<_>>();
    let soft = || tape().symlink("s", "x");
    for (case, archive, names) in [
        ("a file without a type", patched(156, b"\0").0, &["f"][..]),
        ("ustar without a version", patched(257, b"ustar\0\0\0").0, &["f"]),
        ("a mode with the type of a file", patched(100, b"0100644\0").0, &["f"]),
        ("a binary mode", patched(100, b"\x80\0\0\0\0\0\x01\xa4").0, &["f"]),
        ("a symbolic link with a size", sized(b'2', "s", 1), &["f", "s"]),
        ("a hard link with a size", sized(b'1', "h", 1), &["f", "h"]),
        ("a directory with a size", sized(b'5', "d/", 4096), &["d", "f"]),
        ("a pipe with a size", sized(b'6', "p", 512), &["f", "p"]),
        ("a header of Solaris", join(&[long(b'X', "15 mtime=-5.25\n"), soft()]), &["s"]),
        ("K before L", join(&[long(b'K', "to"), long(b'L', "n"), soft()]), &["n"]),
        ("L before K", join(&[long(b'L', "n\0"), long(b'K', "to\0"), soft()]), &["n"]),
        ("L twice", join(&[long(b'L', "1"), long(b'L', "2"), soft()]), &["2"]),
        ("a name of two lines", join(&[tape().pax(&[("path", "a=\nb")]), soft()]), &["a=\nb"]),
    ] {
        let tar = [archive, vec![0; 1024]].concat();
        let seen = as_gnu_tar(&tar);
        let seen: Vec<_> = seen.keys().filter_map(|path| path.to_str()).skip(1).collect();
        assert_eq!(seen, names, "{case}");
    }
}

/// Incremental archives of GNU tar have times where other headers have a prefix.
#[test]
fn appended_and_incremental_archives_are_those_of_gnu_tar() {
    let folder = fast_folder();
    let [tree, first, second] = ["tree", "first", "second"].map(|name| folder.path().join(name));
    std::fs::create_dir_all(tree.join("d")).unwrap();
    for name in ["a", "d/b"] {
        std::fs::write(tree.join(name), name).unwrap();
    }
    std::fs::write(&first, gnu_packs(&tree, &[], &["a"])).unwrap();
    std::fs::write(&second, gnu_packs(&tree, &["-b1"], &["d"])).unwrap();
    tools::run("tar", ["-Af".as_ref(), first.as_os_str(), second.as_os_str()]);
    assert_eq!(as_gnu_tar(&std::fs::read(&first).unwrap()).len(), 4);
    assert_eq!(as_gnu_tar(&gnu_packs(&tree, &["-G"], &["."])).len(), 4);
}
