//! Checks that an attempt that fails before files are moved leaves the directory unchanged.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use stream::Error;
use stream::digest::Checksum;
use stream::error::{ArchiveErrorKind, TargetRefusedError};
use stream::observe::TransferPhase;
use stream::options::ReadOptions;
use testkit::tmpfs::Tmpfs;

use crate::archive::tape::Tape;
use crate::archive::{refusal, snapshot, target_refusal, unpack_beside, unpack_to, unpack_with};
use crate::common::{Point, fast_folder, noise, stopping_at};

/// Fills a directory with an example of everything: files, full and empty directories, a link, and
/// modes.
fn fill(dir: &Path) {
    fs::create_dir_all(dir.join("shared/deep")).unwrap();
    fs::write(dir.join("shared/old"), "old").unwrap();
    fs::write(dir.join("shared/deep/old"), "older").unwrap();
    fs::write(dir.join("file"), "file").unwrap();
    fs::create_dir(dir.join("empty")).unwrap();
    fs::create_dir(dir.join("full")).unwrap();
    fs::write(dir.join("full/thing"), "thing").unwrap();
    symlink("shared", dir.join("link")).unwrap();
    fs::set_permissions(dir.join("shared"), Permissions::from_mode(0o2750)).unwrap();
    fs::set_permissions(dir.join("shared/deep"), Permissions::from_mode(0o500)).unwrap();
}

/// Returns entries that merge with, replace and add to the files that [`fill`] creates.
fn entries() -> Vec<Tape> {
    vec![
        Tape::default().directory("shared", 0o700),
        Tape::default().file("shared/new", b"new"),
        Tape::default().file("shared/old", b"replaced"),
        Tape::default().directory("shared/deep", 0o711),
        Tape::default().file("shared/deep/new", b"new"),
        Tape::default().file("file", b"replaced"),
        Tape::default().file("empty", b"now a file"),
        Tape::default().directory("link", 0o755),
        Tape::default().file("link/file", b"in it"),
        Tape::default().file("fresh/a/b", b"fresh"),
        Tape::default().directory("closed", 0o0),
        Tape::default().symlink("s", "file"),
        Tape::default().hard_link("h", "file"),
    ]
}

fn join(tapes: impl IntoIterator<Item = Tape>) -> Tape {
    Tape(tapes.into_iter().flat_map(|tape| tape.0).collect())
}

/// Unpacks into a filled directory, and expects that to fail and change nothing.
#[track_caller]
fn fails(tar: &[u8], options: &ReadOptions) -> Error {
    let folder = fast_folder();
    fill(folder.path());
    let before = snapshot::without_time_of_root(folder.path());
    let error = unpack_with(folder.path(), tar, 10_000, options).unwrap_err();
    let after = snapshot::without_time_of_root(folder.path());
    snapshot::assert_same(&after, &before, &error.to_string());
    error
}

#[test]
#[ignore = "root: rights of root"]
fn an_archive_is_merged_with_the_directory() {
    let folder = fast_folder();
    fill(folder.path());
    unpack_to(folder.path(), &join(entries()).end()).unwrap();
    let seen = snapshot::of(folder.path());
    for (path, mode, content) in [
        ("shared", 0o40700, &b""[..]),
        ("shared/old", 0o100644, b"replaced"),
        ("shared/new", 0o100644, b"new"),
        ("shared/deep", 0o40711, b""),
        ("shared/deep/old", 0o100644, b"older"),
        ("shared/deep/new", 0o100644, b"new"),
        ("file", 0o100644, b"replaced"),
        ("empty", 0o100644, b"now a file"),
        ("full/thing", 0o100644, b"thing"),
        ("link", 0o40755, b""),
        ("link/file", 0o100644, b"in it"),
        ("fresh", 0o40755, b""),
        ("fresh/a/b", 0o100644, b"fresh"),
        ("closed", 0o40000, b""),
        ("h", 0o100644, b"replaced"),
    ] {
        let entry = &seen[Path::new(path)];
        assert_eq!((entry.mode, &entry.content[..]), (mode, content), "{path}");
    }
    assert_eq!(seen[Path::new("shared")].mtime, (1_700_000_000, 0));
    assert_eq!(seen.len(), 19, "{:?}", seen.keys());
}

#[test]
fn a_directory_without_an_entry_keeps_its_mode() {
    let folder = fast_folder();
    fill(folder.path());
    unpack_to(folder.path(), &Tape::default().file("shared/deep/new", b"").end()).unwrap();
    let seen = snapshot::of(folder.path());
    assert_eq!(seen[Path::new("shared")].mode, 0o42750);
    assert_eq!(seen[Path::new("shared/deep")].mode, 0o40500);
}

#[test]
fn lost_and_found_of_the_filesystem_is_left_unchanged() {
    let folder = fast_folder();
    let kept = folder.path().join("lost+found");
    fs::create_dir(&kept).unwrap();
    fs::set_permissions(&kept, Permissions::from_mode(0o700)).unwrap();
    let before = snapshot::of(&kept);
    let volume = Tape::default().directory("./", 0o755).directory("./lost+found/", 0o711);
    unpack_to(folder.path(), &volume.clone().end()).unwrap();
    assert_eq!(snapshot::of(&kept), before);
    // In a directory that has no `lost+found`, the entry is an ordinary directory.
    let elsewhere = fast_folder();
    unpack_to(elsewhere.path(), &volume.end()).unwrap();
    assert_eq!(snapshot::of(elsewhere.path())[Path::new("lost+found")].mode, 0o40711);
}

#[test]
fn an_invalid_entry_anywhere_changes_nothing() {
    for place in 0..=entries().len() {
        let mut tapes = entries();
        tapes.insert(place, Tape::default().file("../out", b""));
        fails(&join(tapes).end(), &ReadOptions::default());
    }
}

#[test]
fn obstacles_are_found_before_the_first_file_is_moved() {
    // The filesystem decides which name comes last, so some files would be moved before the
    // obstacle and some after it.
    for others in 0..8 {
        let others = (0..others).map(|n| Tape::default().file(format!("{n}-another"), b"x"));
        let tar = join(entries().into_iter().chain(others)).file("full", b"").end();
        let error = fails(&tar, &ReadOptions::default());
        assert_eq!(*target_refusal(&error), TargetRefusedError::Occupied, "{error}");
    }
    // The same inside a directory that both the archive and the target have.
    let folder = fast_folder();
    fs::create_dir_all(folder.path().join("d/z/full")).unwrap();
    for name in 0..20 {
        fs::write(folder.path().join(format!("d/{name}")), "old").unwrap();
    }
    let before = snapshot::without_time_of_root(folder.path());
    let mut tape = Tape::default().directory("d", 0o700).file("a", b"new");
    for name in 0..40 {
        tape = tape.file(format!("d/{name}"), b"new");
    }
    let error = unpack_to(folder.path(), &tape.file("d/z", b"").end()).unwrap_err();
    assert_eq!(*target_refusal(&error), TargetRefusedError::Occupied, "{error}");
    let after = snapshot::without_time_of_root(folder.path());
    snapshot::assert_same(&after, &before, "in the way");
}

#[test]
#[ignore = "root: rights of root"]
fn existing_files_are_replaced_only_if_that_is_allowed() {
    let new = || Tape::default().directory("shared", 0o755).file("fresh", b"new");
    for (name, entry) in [
        ("file", Tape::default().file("file", b"new")),
        ("file", Tape::default().directory("file", 0o755)),
        ("link", Tape::default().directory("link", 0o755)),
        ("link", Tape::default().symlink("link", "shared")),
        ("empty", Tape::default().file("empty", b"new")),
        ("old", Tape::default().file("shared/old", b"new")),
        ("old", Tape::default().symlink("shared/deep/old", "new")),
    ] {
        let folder = fast_folder();
        fill(folder.path());
        let before = snapshot::without_time_of_root(folder.path());
        let tar = join([new(), entry]).end();
        let error = unpack_beside(folder.path(), &tar).unwrap_err();
        assert_eq!(*target_refusal(&error), TargetRefusedError::Exists, "{error}");
        let sentence = format!("/{name}: it exists already: pass --overwrite to replace it");
        assert!(error.to_string().ends_with(&sentence), "{error}");
        let after = snapshot::without_time_of_root(folder.path());
        snapshot::assert_same(&after, &before, name);
        unpack_to(folder.path(), &tar).unwrap();
    }
    // Directories are merged, and files that are not in the archive stay.
    let folder = fast_folder();
    fill(folder.path());
    unpack_beside(folder.path(), &new().file("shared/deep/new", b"new").end()).unwrap();
    assert_eq!(fs::read(folder.path().join("shared/deep/new")).unwrap(), b"new");
    assert_eq!(fs::read(folder.path().join("shared/deep/old")).unwrap(), b"older");
}

#[test]
fn a_wrong_checksum_too_much_data_or_a_stop_changes_nothing() {
    let tar = join(entries()).file("large", &noise(9000, 1)).end();
    let checksum = Some(format!("md5:{:032}", 0).parse::<Checksum>().unwrap());
    let options = ReadOptions { checksum, ..ReadOptions::default() };
    assert!(matches!(fails(&tar, &options), Error::Checksum { .. }));
    for phase in [TransferPhase::Info, TransferPhase::Resize] {
        assert!(matches!(fails(&tar, &stopping_at(Point::Phase(phase))), Error::Stopped));
    }
    let tar = join(entries()).file("large", &noise(10_000, 1)).end();
    let error = fails(&tar, &ReadOptions::default());
    assert!(matches!(refusal(&error), ArchiveErrorKind::NoRoom { .. }), "{error}");
}

#[test]
fn the_staging_directory_of_a_killed_attempt_is_removed() {
    let folder = fast_folder();
    let stale = folder.path().join(".cdi-staging-dead");
    fs::create_dir_all(stale.join("tree/a/b")).unwrap();
    fs::write(stale.join("tree/a/b/c"), "rest").unwrap();
    symlink("/", stale.join("tree/root")).unwrap();
    fs::set_permissions(stale.join("tree/a"), Permissions::from_mode(0o0)).unwrap();
    unpack_to(folder.path(), &Tape::default().file("f", b"").end()).unwrap();
    assert_eq!(snapshot::of(folder.path()).len(), 2);
}

#[test]
#[ignore = "root: mounts"]
fn a_mounted_filesystem_is_found_before_the_first_file_is_moved() {
    let folder = fast_folder();
    fill(folder.path());
    let mounted = Tmpfs::on(&folder.path().join("shared/deep"), 1 << 20);
    let before = snapshot::without_time_of_root(folder.path());
    let outcome = unpack_to(folder.path(), &join(entries()).end());
    let after = snapshot::without_time_of_root(folder.path());
    drop(mounted);
    let error = outcome.unwrap_err().to_string();
    assert!(error.ends_with("shared/deep: invalid cross-device link"), "{error}");
    snapshot::assert_same(&after, &before, "mounted");
}

#[test]
#[ignore = "root: mounts"]
fn a_full_filesystem_is_left_unchanged() {
    let folder = fast_folder();
    let mounted = Tmpfs::on(folder.path(), 1 << 20);
    fill(folder.path());
    let before = snapshot::without_time_of_root(folder.path());
    let tar = join(entries()).file("large", &noise(2 << 20, 1)).end();
    let outcome = unpack_to(folder.path(), &tar);
    let after = snapshot::without_time_of_root(folder.path());
    drop(mounted);
    let error = outcome.unwrap_err();
    assert!(error.to_string().ends_with("no space left on device"), "{error}");
    snapshot::assert_same(&after, &before, "full");
}
