//! Typical mistakes: the sentence says what failed, where, and what to do.

use std::io::Write;
use std::path::Path;

use testkit::certs::Authority;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::origin::{Origin, Script};
use testkit::process::Program;

/// Imports `source` to `target`, which must fail with `code` and words that begin with `sentence`.
#[track_caller]
fn fails(source: &str, target: &Path, args: &[&str], code: i32, sentence: &str) {
    let program = Program::new(crate::BINARY).args(["import", source]).arg(target);
    let finished = program.args(args.iter().copied()).run();
    assert_eq!(finished.code(), code, "{source}: {}", finished.stderr);
    let line = format!("cdi-importer: {sentence}");
    assert!(
        finished.stderr.lines().any(|said| said.starts_with(&line)),
        "{sentence:?} in {}",
        finished.stderr
    );
}

#[test]
fn a_status_names_the_address_and_the_way_out() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let target = folder.path().join("disk.img");
    let statuses = [("/gone", (0, 404)), ("/secret", (0, 403)), ("/bad", (0, 400)), ("/tea", (0, 418))];
    let expires = statuses.map(|(path, status)| (path.to_owned(), status)).into();
    let origin = Origin::start(Script { expires, ..Script::new("x") }).or_fail("a server");
    for (path, words) in [
        ("/gone", "does not exist (404): is the address right?"),
        ("/secret", "may not be read (403): does it need a login, or has a signed address expired?"),
        ("/bad", "answers 400 Bad Request: is it https://?"),
        ("/tea", "answers 418 I'm a teapot"),
    ] {
        let url = origin.url(path);
        fails(&url, &target, &[], 3, &format!("{url} {words}"));
    }
    let locked = Script { basic_auth: Some("bob:right".to_owned()), ..Script::new("x") };
    let origin = Origin::start(locked).or_fail("a server");
    let url = origin.url("/disk.img");
    fails(
        &url,
        &target,
        &[],
        3,
        &format!("{url} wants a user name and a password (401): give --user and --password-file"),
    );
    let password = folder.path().join("password");
    std::fs::write(&password, "wrong").or_fail("a password");
    let login = ["--user", "bob", "--password-file", password.to_str().or_fail("ASCII")];
    fails(&url, &target, &login, 3, &format!("{url} does not accept the user name and the password (401)"));
}

#[test]
fn tls_that_fails_says_what_to_look_at() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let target = folder.path().join("disk.img");
    let authority = Authority::new().or_fail("an authority");
    let tls = authority.server_config().or_fail("TLS");
    let origin = Origin::start_tls(Script::new("x"), tls).or_fail("a server");
    let run = |url: &str| Program::new(crate::BINARY).args(["import", url]).arg(&target).run().stderr;
    let stranger = run(&origin.url("/disk.img"));
    let advice =
        "no authority that is trusted here has signed its certificate; --ca-dir DIR adds authorities";
    assert!(stranger.contains(advice), "{stranger}");
    // As nginx answers a client that speaks TLS to a port without it.
    let plain = std::net::TcpListener::bind("127.0.0.1:0").or_fail("a port");
    let url = format!("https://{}/disk.img", plain.local_addr().or_fail("an address"));
    std::thread::spawn(move || {
        for client in plain.incoming().flatten() {
            (&client).write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").ok();
        }
    });
    let no_tls = run(&url);
    assert!(no_tls.contains("it does not speak TLS: is it http://?"), "{no_tls}");
}

#[test]
fn files_and_sizes_are_told_in_plain_words() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let (target, file) = (folder.path().join("disk.img"), folder.path().join("file"));
    let name = file.to_str().or_fail("ASCII");
    std::fs::write(&file, "").or_fail("an empty file");
    fails(name, &target, &[], 4, "the source is empty: 0 bytes of an image are in it");
    std::fs::write(&file, disk::content(1, 4 << 20)).or_fail("a file");
    fails(
        name,
        &target,
        &["--size", "1Mi"],
        5,
        "the disk has 4194304 bytes, and the target has room for 1048576",
    );
    let missing = "open example.org/disk.qcow2: no such file or directory; the address of a server begins with https://";
    fails("example.org/disk.qcow2", &target, &[], 3, missing);
    let sized = Program::new(crate::BINARY).args(["import", name, "x", "--size", "4GiB"]).run();
    assert!(sized.stderr.contains("\"4GiB\" is not a Kubernetes quantity: write 4Gi"), "{}", sized.stderr);
}
