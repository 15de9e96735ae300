//! Archives that try to write outside their directory, or to exhaust the machine, and their
//! refusals.

use bytes::Bytes;
use stream::Error;
use stream::chunks::ChunkStream;
use stream::error::ArchiveErrorKind as Kind;
use stream::options::ReadOptions;
use stream::zeros::ZEROS;
use tar::{MemberSearch, TarEntry, TarReader, find_file};

use crate::archive::tape::{Fields, Tape, seal};
use crate::archive::{refusal, snapshot, unpack_to, unpack_with};
use crate::common::fast_folder;

/// Unpacks `tar` next to a file that must not change, expects that to fail, and returns the
/// reason.
#[track_caller]
fn refused(what: &str, tar: &[u8]) -> Kind {
    let folder = fast_folder();
    let dir = folder.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(folder.path().join("precious"), "as it was").unwrap();
    std::fs::write(dir.join("here-before"), "too").unwrap();
    let before = snapshot::without_time_of_root(&dir);
    let error = match unpack_to(&dir, tar) {
        Err(error) => error,
        Ok(report) => panic!("{what}: accepted with {report:?}"),
    };
    assert_eq!(snapshot::without_time_of_root(&dir), before, "{what}");
    assert_eq!(std::fs::read(folder.path().join("precious")).unwrap(), b"as it was");
    let names = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, 2, "{what}: a file was created beside the directory");
    refusal(&error).clone()
}

#[test]
fn names_that_leave_the_directory_are_refused() {
    for name in
        ["/precious", "../precious", "a/../../precious", "./../precious", "a/..", "//precious"]
    {
        for tar in [
            Tape::default().file(name, b"bad"),
            Tape::default().directory(name, 0o777),
            Tape::default().symlink(name, "x"),
            Tape::default().file("f", b"").hard_link(name, "f"),
            Tape::default().pax(&[("path", name)]).file("harmless", b"bad"),
            Tape::default().file("f", b"").hard_link("g", name),
        ] {
            let kind = refused(name, &tar.end());
            assert!(matches!(kind, Kind::Name(_) | Kind::Misplaced(_)), "{name}: {kind}");
        }
    }
}

#[test]
fn nothing_is_written_through_symbolic_links() {
    for target in ["..", "/", "/tmp", ".", "inside", "../dir"] {
        let linked = || Tape::default().directory("inside", 0o755).symlink("link", target);
        for tar in [
            linked().file("link/precious", b"bad"),
            linked().directory("link/sub", 0o755),
            linked().directory("link/a/b", 0o755),
            linked().symlink("link/l", "x"),
            linked().file("f", b"").hard_link("link/h", "f"),
            linked().pax(&[("path", "link/precious")]).file("x", b"bad"),
            // A directory is replaced by a link before its next entry.
            Tape::default()
                .directory("inside", 0o755)
                .directory("d", 0o755)
                .symlink("d", target)
                .file("d/precious", b"bad"),
            // A link to a link.
            linked().symlink("two", "link").file("two/precious", b"bad"),
        ] {
            let kind = refused(target, &tar.end());
            let is_it = kind.to_string().contains("leads through the symbolic link");
            assert!(matches!(kind, Kind::Misplaced(_)) && is_it, "{target}: {kind}");
        }
    }
}

#[test]
fn a_symbolic_link_is_replaced_instead_of_followed() {
    let folder = fast_folder();
    let dir = folder.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    let precious = folder.path().join("precious");
    std::fs::write(&precious, "as it was").unwrap();
    let tar = Tape::default()
        .symlink("a", "../precious")
        .file("a", b"new")
        .symlink("b", precious.to_str().unwrap())
        .directory("b", 0o755)
        .symlink("kept", "/etc/../etc/passwd");
    unpack_to(&dir, &tar.end()).unwrap();
    assert_eq!(std::fs::read(&precious).unwrap(), b"as it was");
    assert_eq!(std::fs::read(dir.join("a")).unwrap(), b"new");
    assert!(dir.join("b").is_dir());
    assert_eq!(std::fs::read_link(dir.join("kept")).unwrap().to_str(), Some("/etc/../etc/passwd"));
}

#[test]
fn symbolic_links_that_the_target_had_are_not_followed() {
    let folder = fast_folder();
    let dir = folder.path().join("dir");
    let outside = folder.path().join("outside");
    std::fs::create_dir(&dir).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, dir.join("link")).unwrap();
    let tar = Tape::default().file("link/file", b"new").directory("link", 0o700);
    unpack_to(&dir, &tar.end()).unwrap();
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(std::fs::read(dir.join("link/file")).unwrap(), b"new");
    assert!(std::fs::symlink_metadata(dir.join("link")).unwrap().is_dir());
}

#[test]
fn hard_links_must_refer_to_files_of_the_archive() {
    for (target, before) in [
        ("missing", Tape::default()),
        ("here-before", Tape::default()),
        ("directory", Tape::default().directory("directory", 0o755)),
        ("way/file", Tape::default().directory("d", 0o755).file("d/file", b"").symlink("way", "d")),
        ("d/../f", Tape::default().file("f", b"")),
        ("", Tape::default()),
        (".", Tape::default()),
    ] {
        let kind = refused(target, &before.hard_link("hard", target).end());
        assert!(kind.to_string().starts_with("its hard link target"), "{target}: {kind}");
    }
}

#[test]
fn a_hard_link_to_a_symbolic_link_is_another_name_of_that_link() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, b"secret").unwrap();
    let target = secret.to_str().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let tar = Tape::default().symlink("s", target).hard_link("h", "s");
    unpack_to(dir.path(), &tar.clone().end()).unwrap();
    assert_eq!(std::fs::read_link(dir.path().join("h")).unwrap(), secret);
    // A file of the second name replaces the link instead of writing through it.
    unpack_to(dir.path(), &tar.file("h", b"mine").end()).unwrap();
    assert_eq!(std::fs::read(&secret).unwrap(), b"secret");
    assert_eq!(std::fs::read(dir.path().join("h")).unwrap(), b"mine");
}

#[test]
fn a_fifo_is_created_without_opening_it() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let dir = tempfile::tempdir().unwrap();
    let tar = Tape::default().link(b'6', "pipe", "").end();
    unpack_to(dir.path(), &tar).unwrap();
    let pipe = std::fs::symlink_metadata(dir.path().join("pipe")).unwrap();
    assert!(pipe.file_type().is_fifo());
    assert_eq!(pipe.permissions().mode() & 0o7777, 0o644);
}

#[test]
fn devices_and_unknown_types_are_refused() {
    for typeflag in [b'3', b'4'] {
        let kind = refused("device", &Tape::default().link(typeflag, "dev", "").end());
        assert!(kind.to_string().contains(" is refused: "), "{kind}");
    }
    for typeflag in [b'A', b'M', b'N', b'Z', b'8', b'?', 0xff, b'S'] {
        let kind = refused("type", &Tape::default().link(typeflag, "odd", "").end());
        assert!(kind.to_string().starts_with("entries of type"), "{kind}");
    }
}

#[test]
fn obstacles_and_invalid_names_are_refused() {
    for tar in [
        Tape::default().file("f", b"").file("f/below", b""),
        Tape::default().file("f", b"").directory("f/below", 0o755),
        Tape::default().directory("d", 0o755).file("d/f", b"").file("d", b""),
        Tape::default().file("here-before/below", b"").file("here-before", b""),
        Tape::default().file(".", b""),
        Tape::default().symlink("./", "x"),
        Tape::default().file(".cdi-staging-0/x", b""),
        Tape::default().symlink("s", ""),
        Tape::default().pax(&[("linkpath", "a\0b")]).symlink("s", "x"),
        Tape::default().pax(&[("path", "a\0b")]).file("s", b""),
        Tape::default().pax(&[("linkpath", &"x".repeat(4096))]).symlink("s", "x"),
        Tape::default().pax(&[("path", &"x".repeat(256))]).file("s", b""),
        Tape::default().pax(&[("path", &"x/".repeat(129))]).file("s", b""),
    ] {
        refused("in the way", &tar.end());
    }
}

/// Returns an archive with a file whose header has this size field.
fn claiming(size: &[u8; 12]) -> Vec<u8> {
    let mut block = Fields::new(b'0', "f").block();
    block[124..136].copy_from_slice(size);
    seal(&mut block);
    [&block[..], &[0; 1024]].concat()
}

#[test]
fn impossible_sizes_are_refused() {
    for size in [
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x80\x01\0\0\0\0\0\0\0\0\0\0",
        b"-0000000001\0",
        b"9999999999\0\0",
    ] {
        let kind = refused("size", &claiming(size));
        assert!(kind.to_string().contains("is not a valid"), "{kind}");
    }
    for size in [b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", b"777777777777"] {
        let kind = refused("size", &claiming(size));
        assert!(matches!(kind, Kind::Truncated(_)), "{kind}");
    }
    let kind = refused(
        "pax size",
        &Tape::default().pax(&[("size", "18446744073709551616")]).file("f", b"").end(),
    );
    assert!(kind.to_string().contains("is not a valid"), "{kind}");
}

#[test]
fn headers_that_need_much_memory_are_refused() {
    for (typeflag, size) in [(b'x', (1 << 20) + 1), (b'g', 1 << 32), (b'L', 4097), (b'K', 1 << 30)]
    {
        let mut fields = Fields::new(typeflag, "x");
        fields.size = size;
        let kind = refused("large", &Tape::default().entry(&fields, b"").end());
        assert!(kind.to_string().contains("larger than the limit"), "{kind}");
    }
}

/// Returns an old GNU sparse file with these regions, real size and stored size.
fn old_sparse(regions: &[(u64, u64)], size: u64, stored: u64) -> Vec<u8> {
    let mut fields = Fields::new(b'S', "f");
    fields.magic = *b"ustar  \0";
    fields.size = stored;
    let mut block = fields.block();
    for (entry, (offset, length)) in regions.iter().enumerate() {
        let at = 386 + 24 * entry;
        block[at..at + 12].copy_from_slice(format!("{offset:012o}").as_bytes());
        block[at + 12..at + 24].copy_from_slice(format!("{length:012o}").as_bytes());
    }
    block[483..495].copy_from_slice(format!("{size:012o}").as_bytes());
    seal(&mut block);
    let data = vec![b'x'; usize::try_from(stored).unwrap()];
    let mut tape = Tape(block.to_vec());
    tape = tape.data(&data);
    tape.end()
}

#[test]
fn contradictory_sparse_maps_are_refused() {
    for (regions, size, stored) in [
        (&[(0, 5), (3, 5)][..], 10, 10),
        (&[(5, 5), (0, 5)], 10, 10),
        (&[(0, 11)], 10, 11),
        (&[(8, 3)], 10, 3),
        (&[(0, 5)], 10, 4),
        (&[(0, 4)], 10, 5),
        (&[], 10, 5),
    ] {
        let kind = refused("old sparse", &old_sparse(regions, size, stored));
        assert!(kind.to_string().contains("the sparse map"), "{regions:?}: {kind}");
    }
    for map in [
        "2\n0\n5\n3\n5\n",
        "1\n0\n11\n",
        "-1\n",
        "x\n",
        "\n",
        "1\n0\n",
        "9999999\n",
        "99999999999999999999\n",
        "1\n18446744073709551615\n10\n",
        "11111111111111111111111111111111111111\n",
    ] {
        let mut data = map.as_bytes().to_vec();
        data.resize(512, 0);
        data.extend([b'x'; 10]);
        let records =
            [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "10")];
        let kind = refused(map, &Tape::default().pax(&records).file("f", &data).end());
        assert!(kind.to_string().contains("sparse map"), "{map:?}: {kind}");
    }
    for map in ["0,5,3,5", "0,11", "18446744073709551615,5"] {
        let records = [("GNU.sparse.size", "10"), ("GNU.sparse.map", map)];
        let kind = refused(map, &Tape::default().pax(&records).file("f", b"0123456789").end());
        assert!(kind.to_string().contains("the sparse map"), "{map:?}: {kind}");
    }
}

#[test]
fn a_huge_sparse_file_is_refused_and_leaves_nothing() {
    let folder = fast_folder();
    let records = [("GNU.sparse.size", "18446744073709551615"), ("GNU.sparse.map", "0,0")];
    let tar = Tape::default().pax(&records).file("f", b"").end();
    let error = unpack_to(folder.path(), &tar).unwrap_err();
    assert!(matches!(error, stream::Error::Target(_)), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn files_that_do_not_fit_are_refused_before_they_are_written() {
    let folder = fast_folder();
    let tar = Tape::default().file("a", &[1; 600]).file("b", &[2; 400]).end();
    let error = unpack_with(folder.path(), &tar, 999, &ReadOptions::default()).unwrap_err();
    let expected = Kind::NoRoom { needed: 1000, available: 999 };
    assert_eq!(*refusal(&error), expected);
    assert!(
        error.to_string().contains("larger than the reported available storage 999"),
        "{error}"
    );
    assert!(error.to_string().contains("entry `b` at byte 0x600 of the tar"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let report = unpack_with(folder.path(), &tar, 1000, &ReadOptions::default()).unwrap();
    assert_eq!((report.entries, report.data_bytes, report.written_bytes), (2, 1000, 1000));
}

#[test]
fn a_file_that_is_not_a_tar_is_named_as_such() {
    for bytes in [
        &b"PKsomething"[..],
        b"x",
        &[b'a'; 512],
        &[b'a'; 5000],
        // A disk that begins with zeros is not an empty archive.
        &[vec![0; 4096], b"boot".to_vec(), vec![0; 4096]].concat(),
        &[vec![0; 512], b"boot".to_vec(), vec![0; 4096]].concat(),
    ] {
        let folder = fast_folder();
        let error = unpack_to(folder.path(), bytes).unwrap_err();
        assert!(error.to_string().starts_with("this does not look like a tar archive"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn names_in_errors_are_escaped() {
    let name = "/\x1b[2J\n\u{202e}\u{2028}\u{200b}ü";
    let error = refused("escape", &Tape::default().file(name, b"").end());
    assert!(matches!(error, Kind::Name(_)));
    let folder = fast_folder();
    let error = unpack_to(folder.path(), &Tape::default().file(name, b"").end()).unwrap_err();
    let shown = r"entry `/\u{1b}[2J\n\u{202e}\u{2028}\u{200b}ü`";
    assert!(error.to_string().contains(shown), "{error}");
}

/// An archive with zeros for ever after its beginning.
struct Endless(Option<Bytes>);

impl ChunkStream for Endless {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        Ok(Some(self.0.take().unwrap_or_else(|| Bytes::from_static(&ZEROS))))
    }
}

/// A search that accepts no file.
struct Unwilling;

impl MemberSearch for Unwilling {
    fn inspect_member(&mut self, _: &TarEntry, _: &mut TarReader) -> Result<bool, Error> {
        Ok(false)
    }
}

#[test]
fn a_search_through_endless_data_is_ended() {
    let size = (1u64 << 50).to_string();
    let huge = Tape::default().pax(&[("size", &size)]).entry(&Fields::new(b'0', "other"), b"").0;
    let ended = Tape::default().file("other", b"x").end();
    for (what, head) in [("a file that is not searched for", huge), ("zeros after the end", ended)]
    {
        let stream = Endless(Some(head.into()));
        match find_file(Box::new(stream), Unwilling) {
            Err(error) => {
                let reason = refusal(&error).to_string();
                let (passed, rest) = reason.split_once(' ').unwrap();
                assert!(rest.contains("it may be endless"), "{what}: {error}");
                assert!(passed.parse::<u64>().unwrap() > 64 << 30, "{what}: {error}");
            }
            Ok(_) => panic!("{what}: the search ended without an error"),
        }
    }
}
