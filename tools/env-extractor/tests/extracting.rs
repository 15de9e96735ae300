//! The program in an empty root, as it runs in a user's image.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use testkit::fail::OrFail;
use testkit::process::{Finished, Program};
use testkit::tools;

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-env-extractor");

/// Runs the program in a root that holds nothing but it and an empty directory `shared`.
fn run(root: &Path, arguments: &[&str]) -> Finished {
    std::fs::create_dir_all(root.join("shared")).or_fail("a folder");
    std::fs::copy(BINARY, root.join("env-extractor")).or_fail("the program");
    let variables = ["-i", "PATH=/bin", "KUBEVIRT_IO_X=a=B", "TEXT=first\nsecond", "EMPTY="];
    let chroot =
        [tools::find("chroot").into(), root.as_os_str().to_owned(), "/env-extractor".into()];
    let words = variables.iter().map(OsString::from).chain(chroot);
    let words = words.chain(arguments.iter().map(OsString::from));
    Program::new(tools::find("env")).args(words).run()
}

#[test]
#[ignore = "root: rights of root"]
fn the_environment_is_written_in_order_to_a_private_file() {
    let root = tempfile::tempdir().or_fail("a root");
    let file = root.path().join("shared/env");
    std::fs::create_dir(root.path().join("shared")).or_fail("a folder");
    for arguments in [&[][..], &["-env-file", "/shared/env"], &["--env-file=/shared/env"]] {
        let finished = run(root.path(), arguments);
        finished.assert_success("extraction");
        assert!(
            finished.stderr.contains("Extracted environment variables to /shared/env"),
            "{}",
            finished.stderr
        );
        let text = std::fs::read_to_string(&file).or_fail("the file");
        assert_eq!(text, "PATH=/bin\nKUBEVIRT_IO_X=a=B\nTEXT=first\nsecond\nEMPTY=\n");
        assert_eq!(file.metadata().or_fail("the file").permissions().mode() & 0o777, 0o600);
        // What was there before is gone the next time.
        std::fs::write(&file, "old".repeat(1000)).or_fail("the file");
    }
}

#[test]
#[ignore = "root: rights of root"]
fn failures_and_help_end_as_in_upstreams_program() {
    let root = tempfile::tempdir().or_fail("a root");
    run(root.path(), &["-env-file", "/missing/env"])
        .assert_failure(1, "Failed creating /missing/env: ");
    run(root.path(), &["-env-file", "/shared"]).assert_failure(1, "Failed creating /shared: ");
    run(root.path(), &["-x"]).assert_failure(2, "flag provided but not defined: -x");
    let help = run(root.path(), &["-h"]);
    assert_eq!(help.code(), 0);
    assert!(
        help.stderr.contains("-env-file") && help.stderr.contains("(default /shared/env)"),
        "{}",
        help.stderr
    );
    assert!(!root.path().join("shared/env").exists(), "help writes nothing");
}
