//! `cdi-importer unpack` on the command line.

use std::path::Path;

use testkit::fail::OrFail;
use testkit::origin::{Origin, Script};
use testkit::process::{Finished, Program};
use testkit::tools;

fn unpack(words: &[&str]) -> Finished {
    let program = Program::new(crate::BINARY);
    program.args(["unpack"]).args(words).run()
}

/// A small tree as a tar, compressed by `codec`.
fn archive(codec: &str) -> Vec<u8> {
    let tree = tempfile::tempdir().or_fail("a folder");
    std::fs::create_dir(tree.path().join("etc")).or_fail("etc");
    std::fs::write(tree.path().join("etc/motd"), "hello").or_fail("a file");
    let path = tree.path().to_str().or_fail("a path of ASCII");
    let tar = tools::filter("tar", ["-c", "-C", path, "."], b"");
    tools::filter(codec, ["-c"], &tar)
}

fn text(path: &Path) -> &str {
    path.to_str().or_fail("a path of ASCII")
}

#[test]
#[ignore = "tools: xz"]
fn a_file_and_an_object_on_a_server_become_the_same_tree() {
    let content = archive("xz");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tree.tar.xz");
    std::fs::write(&file, &content).unwrap();
    let origin = Origin::start(Script::new(content)).unwrap();
    for source in [text(&file), &origin.url("/tree.tar.xz")] {
        let dir = tempfile::tempdir().unwrap();
        let unpacked = |options: &[&str]| {
            let finished = unpack(&[options, &[source, text(dir.path())]].concat());
            finished.assert_success(source);
            let said = &finished.stdout;
            assert!(said.starts_with("unpacked xz > tar: 3 entries, 5 B of data"), "{said}");
            assert_eq!(std::fs::read(dir.path().join("etc/motd")).unwrap(), b"hello");
        };
        unpacked(&[]);
        std::fs::write(dir.path().join("etc/motd"), "mine").unwrap();
        unpacked(&["--overwrite"]);
    }
}

/// Sentences of other failures are in `importer/tests/images/mistakes/archives.snap`.
#[test]
fn an_archive_that_cannot_be_unpacked_has_its_exit_code_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (file, noise) = (folder.path().join("tree.tar.gz"), folder.path().join("noise"));
    std::fs::write(&file, archive("gzip")).unwrap();
    std::fs::write(&noise, testkit::disk::content(1, 1 << 16)).unwrap();
    let wrong = format!("md5:{}", "0".repeat(32));
    let exists = "/etc/motd: it exists already: pass --overwrite to replace it";
    for (options, source, code, sentence) in [
        (&["--overwrite"][..], &noise, 4, "this does not look like a tar archive"),
        (&["--overwrite", "--checksum", &wrong], &file, 6, "checksum mismatch"),
        (&[], &file, 7, exists),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let motd = dir.path().join("etc/motd");
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        std::fs::write(&motd, "mine").unwrap();
        let words = [options, &[text(source), text(dir.path())]].concat();
        unpack(&words).assert_failure(code, sentence);
        assert_eq!(std::fs::read(&motd).unwrap(), b"mine", "{sentence}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "{sentence}");
    }
}
