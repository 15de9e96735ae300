//! The stream sent of a volume: the bytes of GNU tar, in a framing that another program decodes.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::BINARY;
use testkit::cases::check_all;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::golang;
use testkit::random::Random;
use testkit::tools;
use testkit::trees::{Reach, grow};

const MIB: u64 = 1 << 20;

/// Size of a tar record, to a multiple of which archives are padded.
const RECORD_BYTES: usize = 10_240;

/// Number of random trees; each is packed with and without holes.
const TREES: u64 = 150;

fn pack(source: &Path, options: &[&str]) -> Vec<u8> {
    let output = Command::new(BINARY)
        .arg("pack")
        .arg(source)
        .args(options)
        .output()
        .or_fail("run cdi-cloner");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The archive of GNU tar of the sorted names in `folder`, with the options of CDI's cloner.
fn gnu_tar(folder: &Path, sparse: bool) -> Vec<u8> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .or_fail(folder.display())
        .map(|entry| entry.or_fail("an entry").file_name())
        .filter(|name| name != "lost+found")
        .collect();
    names.sort();
    // In a list: tar would not find names with a backslash if they were arguments.
    let list: Vec<u8> = names.iter().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect();
    let options = ["-c", "--format=gnu", "--numeric-owner", "--sort=name", "-f", "-"];
    let mut arguments: Vec<OsString> = options.map(Into::into).into();
    arguments.extend(sparse.then(|| "-S".into()));
    arguments.extend(["-C".into(), folder.into()]);
    arguments.extend(["--null", "--files-from", "-"].map(Into::into));
    tools::filter("tar", arguments, &list)
}

#[track_caller]
fn assert_same(ours: &[u8], theirs: &[u8], case: &str) {
    if ours != theirs {
        let same = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
        panic!(
            "{case}: {} bytes, GNU tar makes {}; they differ at byte {same}",
            ours.len(),
            theirs.len()
        );
    }
}

#[test]
#[ignore = "root: rights of root"]
fn random_trees_are_packed_exactly_as_by_gnu_tar() {
    check_all(0..TREES, |seed| {
        let folder = tempfile::tempdir().or_fail("a folder");
        grow(folder.path(), &mut Random::new(*seed), Reach::ANY, 0);
        for (sparse, options) in
            [(true, &["--encoding=plain"][..]), (false, &["--encoding=plain", "--no-holes"])]
        {
            let case = format!("seed {seed}, sparse {sparse}");
            assert_same(&pack(folder.path(), options), &gnu_tar(folder.path(), sparse), &case);
        }
    });
}

#[test]
#[ignore = "root: device nodes"]
fn special_files_numbers_and_holes_are_packed_as_by_gnu_tar() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let word = |name: &str| path(name).to_string_lossy().into_owned();
    tools::run("mknod", [word("fifo"), "p".to_owned()]);
    tools::run("mknod", [word("null"), "c".into(), "1".into(), "3".into()]);
    tools::run("mknod", [word("disk"), "b".into(), "259".into(), "70000".into()]);
    fs::hard_link(path("null"), path("same-null")).unwrap();
    symlink("nowhere", path("link")).unwrap();
    fs::hard_link(path("link"), path("same-link")).unwrap();
    fs::write(path("owned"), "x").unwrap();
    std::os::unix::fs::chown(path("owned"), Some(3_000_000_000), Some(2_097_151)).unwrap();
    // A file that is only a hole; more regions than a header holds; a size of more than eleven
    // octal digits; names as long as the field of the header.
    File::create(path("hole")).unwrap().set_len(5_000_001).unwrap();
    let many = File::create(path("many")).unwrap();
    for index in 0..60 {
        many.write_all_at(b"data", index * 128 * 1024).unwrap();
    }
    let huge = File::create(path("huge")).unwrap();
    huge.set_len(9 << 30).unwrap();
    huge.write_all_at(b"end", (9 << 30) - 3).unwrap();
    for length in [99, 100, 101] {
        fs::write(path(&"n".repeat(length)), "x").unwrap();
        fs::create_dir(path(&"d".repeat(length))).unwrap();
    }
    fs::create_dir_all(path("nested/lost+found")).unwrap();
    fs::create_dir(path("lost+found")).unwrap();
    fs::write(path("lost+found/inode"), "x").unwrap();
    assert_same(
        &pack(folder.path(), &["--encoding=plain"]),
        &gnu_tar(folder.path(), true),
        "special",
    );
}

#[test]
fn an_empty_volume_becomes_an_archive_without_entries() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(pack(folder.path(), &["--encoding=plain"]), [0; RECORD_BYTES]);
    assert_same(&gnu_tar(folder.path(), true), &[0; RECORD_BYTES], "empty");
    fs::create_dir(folder.path().join("lost+found")).unwrap();
    assert_eq!(pack(folder.path(), &["--encoding=plain"]), [0; RECORD_BYTES]);
    // GNU tar leaves sockets out too.
    let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
    fs::write(folder.path().join("file"), "x").unwrap();
    assert_same(
        &pack(folder.path(), &["--encoding=plain"]),
        &gnu_tar(folder.path(), true),
        "a socket",
    );
}

#[test]
#[ignore = "server: Go"]
fn cdis_snappy_library_decodes_our_stream() {
    let folder = tempfile::tempdir().unwrap();
    let volume = folder.path().join("volume");
    fs::create_dir(&volume).unwrap();
    grow(&volume, &mut Random::new(7), Reach::ANY, 0);
    let sparse = File::create(volume.join("disk.img")).unwrap();
    sparse.set_len(40 * MIB).unwrap();
    sparse.write_all_at(&disk::content(1, MIB + 5), 9 * MIB).unwrap();
    let raw = folder.path().join("disk.raw");
    fs::write(&raw, disk::sparse_content(3, 12 * MIB + 512, 6)).unwrap();
    for source in [&volume, &raw, &volume.join("disk.img")] {
        for options in [&[][..], &["--no-holes"]] {
            let framed = pack(source, options);
            let undone = golang::undo_snappy(&framed);
            let plain = pack(source, &[&["--encoding=plain"][..], options].concat());
            assert_same(&undone, &plain, &source.display().to_string());
        }
    }
    assert!(pack(&raw, &["--encoding=plain"]) == fs::read(&raw).unwrap());
    // The decoded stream must also extract with GNU tar to the same tree.
    let copy = folder.path().join("copy");
    fs::create_dir(&copy).unwrap();
    let tar = golang::undo_snappy(&pack(&volume, &[]));
    let arguments = ["-x", "-p", "-f", "-", "-C"].map(Into::into);
    tools::filter("tar", arguments.into_iter().chain([copy.clone().into_os_string()]), &tar);
    assert_same(&gnu_tar(&copy, true), &gnu_tar(&volume, true), "the extracted tree");
}

/// The disk has 4 TiB, nearly all of them a hole: reading it would take hours.
#[test]
fn holes_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    let file = File::create(&image).unwrap();
    file.set_len(4 << 40).unwrap();
    file.write_all_at(b"data", 3 << 40).unwrap();
    // Where holes are sent as zeros, they take four bytes for each 128 KiB.
    let zeros = 130 << 20;
    for (source, options, most) in [
        (folder.path(), &["--encoding=snappy"][..], 20_000),
        (folder.path(), &["--encoding=zstd"], 20_000),
        (folder.path(), &["--encoding=zstd", "--no-holes"], zeros),
        (&image, &["--encoding=zstd"], zeros),
    ] {
        let packed = pack(source, options);
        assert!(packed.len() < most, "{} bytes, {options:?}", packed.len());
    }
}

/// Packs `source`; calls `change` after the first bytes. Returns the exit code and stderr.
fn pack_changed(source: &Path, change: impl FnOnce()) -> (i32, String) {
    let mut child = Command::new(BINARY)
        .arg("pack")
        .arg(source)
        .arg("--encoding=plain")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .or_fail("run cdi-cloner");
    let mut stdout = child.stdout.take().or_fail("a pipe");
    stdout.read_exact(&mut [0; 4096]).or_fail("the first bytes");
    change();
    std::io::copy(&mut stdout, &mut std::io::sink()).or_fail("the rest");
    let output = child.wait_with_output().or_fail("the end");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().or_fail("an exit code"), stderr)
}

/// Size of a file that no buffers on the way can hold, so that its end is read after the change.
const LONG_MIB: usize = 64;
const LONG: u64 = LONG_MIB as u64 * MIB;

#[test]
fn a_file_that_shrinks_while_it_is_packed_is_an_error() {
    for (name, hole) in [("data", false), ("hole", true)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, disk::content(1, MIB).repeat(LONG_MIB)).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        if hole {
            // Only a part of the final hole is cut off, which is never read.
            file.set_len(2 * LONG).unwrap();
        }
        let end = if hole { LONG + MIB } else { LONG - MIB };
        for source in [folder.path(), &path] {
            let announced = if hole { 2 * LONG } else { LONG };
            file.set_len(announced).unwrap();
            if !hole {
                file.write_all_at(&disk::content(2, MIB), LONG - MIB).unwrap();
            }
            let (code, output) = pack_changed(source, || file.set_len(end).unwrap());
            assert_eq!(code, 3, "{output}");
            let sentence = format!(
                "became shorter while it was read: it had {announced} bytes, and now ends at byte {end}"
            );
            assert!(output.contains(name) && output.contains(&sentence), "{output}");
        }
    }
}

#[test]
fn only_the_announced_part_of_a_growing_file_is_packed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    fs::write(&path, disk::content(1, MIB).repeat(LONG_MIB)).unwrap();
    let file = File::options().append(true).open(&path).unwrap();
    let (code, output) = pack_changed(folder.path(), || {
        std::io::Write::write_all(&mut &file, b"one more line").unwrap();
    });
    assert_eq!(code, 0, "{output}");
    let grown = LONG + 13;
    assert!(output.contains(&format!("grew to {grown} bytes")), "{output}");
}

#[test]
fn a_volume_is_not_packed_into_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    let content = disk::content(1, MIB);
    fs::write(&path, &content).unwrap();
    let other = folder.path().join("other name");
    fs::hard_link(&path, &other).unwrap();
    let output = Command::new(BINARY)
        .arg("pack")
        .arg(&path)
        .stdout(File::options().write(true).open(&other).unwrap())
        .output()
        .or_fail("run cdi-cloner");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("it is the volume, or overlaps it"), "{errors}");
    assert!(fs::read(&path).unwrap() == content, "the volume was overwritten");
}
