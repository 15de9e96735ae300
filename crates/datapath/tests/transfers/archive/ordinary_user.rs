//! Unpacks as the user of the pod, because root ignores the permissions of files.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use stream::error::{ArchiveErrorKind, TargetRefusedError};

use crate::archive::tape::Tape;
use crate::archive::{refusal, snapshot, target_refusal, unpack_beside, unpack_to};
use crate::common::fast_folder;

/// The user ID of CDI's pods.
const USER: u32 = 107;

/// Runs `check` as an ordinary user. If this process is root, runs it in another process that
/// executes only this test.
fn as_ordinary_user(test: &str, check: impl FnOnce()) {
    if !rustix::process::geteuid().is_root() {
        return check();
    }
    let folder = fast_folder();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("test");
    // `cp` makes the copy instead of this process: a child that another test starts meanwhile
    // inherits our open files for a moment, and a program that is open for writing cannot be
    // executed.
    let copy = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copy.unwrap().success());
    let output = Command::new(program)
        .args(["--exact", &format!("archive::ordinary_user::{test}")])
        .current_dir(folder.path())
        .uid(USER)
        .gid(USER)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Directories without permissions, and entries that add files to them later.
fn closed() -> Tape {
    Tape::default()
        .directory("closed", 0o0)
        .file("closed/a", b"a")
        .directory("closed/inner", 0o111)
        .file("closed/inner/b", b"b")
        .directory("read-only", 0o555)
        .file("closed/c", b"c")
        .file("read-only/d", b"d")
        .hard_link("read-only/e", "read-only/d")
}

#[test]
fn directories_without_write_permission_are_filled() {
    as_ordinary_user("directories_without_write_permission_are_filled", || {
        let folder = fast_folder();
        let [closed_path, read_only] = ["closed", "read-only"].map(|name| folder.path().join(name));
        // Later rounds find everything already there, first with open and then with closed
        // directories.
        for is_closed in [false, true, true] {
            unpack_to(folder.path(), &closed().end()).unwrap();
            assert_eq!((mode(&closed_path), mode(&read_only)), (0o0, 0o555));
            assert_eq!(fs::read(read_only.join("e")).unwrap(), b"d");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
            set_mode(&closed_path, 0o700);
            set_mode(&read_only, 0o700);
            assert_eq!(mode(&closed_path.join("inner")), 0o111);
            set_mode(&closed_path.join("inner"), 0o700);
            for (name, content) in [("a", "a"), ("inner/b", "b"), ("c", "c")] {
                assert_eq!(fs::read(closed_path.join(name)).unwrap(), content.as_bytes());
            }
            if is_closed {
                set_mode(&closed_path.join("inner"), 0o111);
                set_mode(&read_only, 0o555);
                set_mode(&closed_path, 0o0);
            }
        }
        // Open them again, so that their folder can be removed.
        set_mode(&closed_path, 0o700);
        set_mode(&closed_path.join("inner"), 0o700);
        set_mode(&read_only, 0o700);
    });
}

#[test]
fn a_failed_attempt_leaves_no_closed_directories() {
    as_ordinary_user("a_failed_attempt_leaves_no_closed_directories", || {
        let folder = fast_folder();
        fs::create_dir_all(folder.path().join("full/thing")).unwrap();
        // Once it fails while it is extracted, once when everything is about to be moved.
        let error = unpack_to(folder.path(), &closed().file("../out", b"").end()).unwrap_err();
        assert!(matches!(refusal(&error), ArchiveErrorKind::Name(_)), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let error = unpack_to(folder.path(), &closed().file("full", b"").end()).unwrap_err();
        assert_eq!(*target_refusal(&error), TargetRefusedError::Occupied, "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    });
}

#[test]
fn closed_directories_of_the_target_are_restored_after_a_failure() {
    as_ordinary_user("closed_directories_of_the_target_are_restored_after_a_failure", || {
        let folder = fast_folder();
        let [closed_path, full] = ["closed", "full"].map(|name| folder.path().join(name));
        fs::create_dir_all(full.join("thing")).unwrap();
        fs::create_dir_all(closed_path.join("inner")).unwrap();
        fs::write(closed_path.join("a"), "old").unwrap();
        let snapshot = || {
            set_mode(&closed_path, 0o700);
            let seen = snapshot::without_time_of_root(folder.path());
            set_mode(&closed_path, 0o0);
            seen
        };
        let before = snapshot();
        let orders = [
            [Tape::default().file("full", b"").0, closed().0].concat(),
            closed().file("full", b"").0,
        ];
        for order in orders {
            let error = unpack_to(folder.path(), &Tape(order).end()).unwrap_err();
            assert_eq!(*target_refusal(&error), TargetRefusedError::Occupied, "{error}");
            assert_eq!(mode(&closed_path), 0o0);
            snapshot::assert_same(&snapshot(), &before, "closed");
        }
        // Without permission to overwrite, existing directories must be writable, as for any other
        // program.
        let error = unpack_beside(folder.path(), &closed().end()).unwrap_err();
        assert!(error.to_string().ends_with("permission denied"), "{error}");
        assert_eq!(mode(&closed_path), 0o0);
        set_mode(&closed_path, 0o500);
        let error = unpack_beside(folder.path(), &Tape::default().file("closed/x", b"").end());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("write to") && error.ends_with("permission denied"), "{error}");
        set_mode(&closed_path, 0o700);
    });
}

#[test]
fn a_root_directory_of_another_user_keeps_its_mode() {
    as_ordinary_user("a_root_directory_of_another_user_keeps_its_mode", || {
        // Everybody may write here, but only root may change its mode.
        let foreign = Path::new("/dev/shm");
        let before = mode(foreign);
        let name = format!("cdi-archive-test-{}", std::process::id());
        let tar = Tape::default().directory("./", 0o700).file(format!("./{name}"), b"x").end();
        unpack_to(foreign, &tar).unwrap();
        let path = foreign.join(name);
        assert_eq!(fs::read(&path).unwrap(), b"x");
        fs::remove_file(path).unwrap();
        assert_eq!(mode(foreign), before);
    });
}

#[test]
fn a_root_directory_that_the_archive_closes_is_closed_at_the_end() {
    as_ordinary_user("a_root_directory_that_the_archive_closes_is_closed_at_the_end", || {
        let dir = fast_folder();
        let tar = Tape::default().directory("./", 0o500).file("x", b"x").end();
        unpack_to(dir.path(), &tar).unwrap();
        assert_eq!(mode(dir.path()) & 0o7777, 0o500);
        let names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["x"]);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    });
}
