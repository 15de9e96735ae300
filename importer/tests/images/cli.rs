//! The command line: help, usage errors, exit codes, and the output that scripts read.

use std::path::{Path, PathBuf};

use testkit::certs::Authority;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Image, Spec};
use testkit::origin::{Origin, Script};
use testkit::process::Program;
use testkit::shells::assert_completion;

const MIB: u64 = 1 << 20;

fn importer<const N: usize>(arguments: [&str; N]) -> Program {
    Program::new(crate::BINARY).args(arguments)
}

fn import(source: &str, target: &Path) -> Program {
    importer(["import", source]).arg(target)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().or_fail("a folder")
}

/// A raw disk of 3 MiB, and the target of its import.
fn raw(folder: &Path) -> (PathBuf, PathBuf) {
    let source = folder.join("source.img");
    std::fs::write(&source, disk::content(7, 3 * MIB)).or_fail("write a source");
    (source, folder.join("disk.img"))
}

fn text(path: &Path) -> &str {
    path.to_str().or_fail("a path of ASCII")
}

fn qcow2(folder: &Path) -> Image {
    Spec { compression: Compression::Zlib, ..Spec::new(Content::Sparse) }.build(folder, "image")
}

#[test]
fn help_manual_and_version_are_on_stdout_and_a_missing_command_is_an_error() {
    let help = importer(["import", "--help"]).run();
    help.assert_success("help");
    assert!(help.stdout.contains("Exit codes:") && help.stderr.is_empty(), "{help:?}");
    let widest = help.stdout.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{}", help.stdout);
    importer([]).run().assert_failure(2, "Usage: cdi-importer [OPTIONS] <COMMAND>");
    assert!(importer(["man"]).run().stdout.contains(".TH cdi-importer "));
    let page = importer(["man", "import"]).run().stdout;
    for line in [".TH cdi-importer-import ", ".SH EXAMPLES", ".SH \"EXIT STATUS\""] {
        assert!(page.contains(line), "{line}: {page}");
    }
    assert!(!page.contains("EXTRA"), "{page}");
    importer(["man", "nonsense"]).run().assert_failure(2, "there is no command nonsense");
    let terminal = testkit::terminal::Terminal::open(80);
    let refused = importer(["man"]).start_on(&terminal).wait();
    assert_eq!(refused.code(), 2, "{}", refused.stdout);
    let version = importer(["--version"]).run().stdout;
    let begin = concat!("cdi-importer ", env!("CARGO_PKG_VERSION"), " (no release, ");
    // An emulated program (`ci/emulated`) may be for another machine, unknown here.
    let machine = match std::env::var_os(testkit::process::INSTEAD) {
        None => std::env::consts::ARCH,
        Some(_) => "",
    };
    let end = format!("{machine}-linux)\n");
    assert!(version.starts_with(begin) && version.ends_with(&end), "{version}");
}

#[test]
fn options_before_a_subcommand_select_the_command_line() {
    let folder = folder();
    let (source, target) = raw(folder.path());
    let imported = importer(["--memory", "100Mi", "import", text(&source), text(&target)]).run();
    imported.assert_success("--memory in front");
    disk::assert_same(&target, &source, 3 * MIB, "--memory in front");
    // The pod's flags apply without a subcommand, or if `import` is the value of an option.
    for (words, sentence) in [
        (&["-v", "high"][..], "invalid value \"high\" for flag -v"),
        (&["--memory", "import", "-v=1"], "flag provided but not defined: -memory"),
        (&["-log_dir", "import", "-v", "high"], "invalid value \"high\""),
    ] {
        Program::new(crate::BINARY).args(words.to_vec()).run().assert_failure(2, sentence);
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn an_import_says_what_it_did() {
    let folder = folder();
    let image = qcow2(folder.path());
    let target = folder.path().join("disk.img");
    let finished = import(text(&image.qcow2), &target).run();
    finished.assert_success("import");
    let summary = &finished.stdout;
    assert!(summary.starts_with("imported qcow2: 24.00 MiB virtual, "), "{summary}");
    disk::assert_same(&target, &image.raw, image.virtual_size, "import");

    let options = ["--force", "--quiet", "--route", "one-pass"];
    let again = import(text(&image.qcow2), &target).args(options).run();
    again.assert_success("--force");
    assert_eq!((again.stdout.as_str(), again.stderr.as_str()), ("", ""));
    disk::assert_same(&target, &image.raw, image.virtual_size, "--force");
}

#[test]
fn standard_input_is_imported_into_a_file_of_the_given_size() {
    let folder = folder();
    let (source, target) = raw(folder.path());
    let plain = std::fs::read(&source).or_fail("read the source");
    let gzip = testkit::tools::filter("gzip", ["-c"], &plain);
    let checksum = crate::sha256(&gzip);
    std::fs::write(&source, gzip).or_fail("replace the source");
    let finished = import("-", &target)
        .args(["--size", "5Mi", "--preallocate", "--checksum", &checksum])
        .stdin_file(&source)
        .run();
    finished.assert_success("stdin");
    let said = &finished.stdout;
    assert!(said.contains("imported gzip > raw: 3.00 MiB virtual"), "{said}");
    assert!(said.contains(&format!("{checksum} verified")), "{said}");
    let disk = std::fs::read(&target).or_fail("read the disk");
    assert!(disk.len() as u64 == 5 * MIB && disk.starts_with(&plain), "the image is in front");
    let allocated = disk::allocated_bytes(&target);
    assert!(allocated >= 5 * MIB, "{allocated} bytes are allocated");
}

#[test]
fn progress_is_plain_on_a_pipe_and_json_on_request() {
    let folder = folder();
    let (source, target) = raw(folder.path());
    let slow = |progress: &str| {
        let rate = ["--limit-rate", "2M", "--force", "--progress", progress];
        import(text(&source), &target).args(rate).run()
    };
    let plain = slow("auto");
    plain.assert_success("plain");
    let line = plain.stderr.lines().next().or_fail("a line of progress");
    assert!(line.starts_with("cdi-importer: ") && line.contains(" of 3.00 MiB read, "), "{line}");

    let json = slow("json");
    json.assert_success("json");
    let events = crate::events(&json);
    let of = |name: &str| events.iter().filter(|event| event["event"] == name).collect::<Vec<_>>();
    assert_eq!(of("image")[0]["format"], "raw");
    let progress = of("progress");
    let percent = progress[0]["percent"].as_f64().or_fail("a percentage");
    assert!(percent > 0.0 && percent < 100.0, "{percent}");
    assert_eq!(progress[0]["source_total"], 3 * MIB);
    let last = events.last().or_fail("events");
    assert_eq!((&last["event"], &last["virtual_size"]), (&"done".into(), &(3 * MIB).into()));
    // Data held at once: at least a chunk, at most the disk and the buffers of each thread.
    let peak = last["peak_held_bytes"].as_u64().or_fail("a number of bytes");
    assert!((256 << 10..16 * MIB).contains(&peak), "{peak} bytes held");
}

#[test]
#[ignore = "slow: waits 6 s"]
fn progress_begins_with_the_first_bytes_however_slow_they_come() {
    let folder = folder();
    let source = folder.path().join("source.img");
    // Less than two chunks of 256 KiB. Not zeros, which would be passed on sooner.
    let content = vec![7; 320 << 10];
    std::fs::write(&source, &content).or_fail("write a source");
    let origin = Origin::start(Script { rate: Some(100_000), ..Script::new(content) });
    let origin = origin.or_fail("an origin");
    let slow_server = import(&origin.url("/disk"), &folder.path().join("1"));
    let slow_reader =
        import(text(&source), &folder.path().join("2")).args(["--limit-rate", "100K"]);
    for program in [slow_server, slow_reader] {
        let finished = program.args(["--progress", "plain"]).run();
        finished.assert_success("import");
        // There is a line per second.
        let lines: Vec<&str> = finished.stderr.lines().collect();
        assert!(lines.len() >= 3 && lines[1].contains(" of 320.00 KiB read, "), "{lines:?}");
        assert!(!lines[1].contains(", 0 B of "), "{lines:?}");
    }
}

#[test]
fn a_failure_is_the_last_json_event() {
    let folder = folder();
    let finished =
        import("/does/not/exist", &folder.path().join("disk.img")).arg("--progress=json").run();
    let events = crate::events(&finished);
    let last = events.last().or_fail("events");
    let facts = (&last["event"], &last["stage"], &last["code"]);
    assert_eq!(facts, (&"error".into(), &"source".into(), &3.into()));
    let message = last["message"].as_str().or_fail("text");
    assert_eq!(format!("cdi-importer: {message}\n"), finished.stderr);
}

/// `info` as text and JSON, of an image and of one that an import would refuse.
#[test]
#[ignore = "tools: qemu-img"]
fn info_describes_an_image_and_why_it_would_be_refused() {
    let folder = folder();
    let image = Spec::new(Content::Dense).build(folder.path(), "image").qcow2;
    let child = folder.path().join("child.qcow2");
    let create = "create -q -u -f qcow2 -F raw -b /etc/base.img".split(' ');
    testkit::tools::run("qemu-img", create.chain([text(&child), "1M"]));
    let bytes = std::fs::read(&image).or_fail("read the image");
    let origin = Origin::start(Script::new(bytes)).or_fail("an origin");
    let trailer = b"koly\0\0\0\x04\0\0\x02\0";
    let dmg = folder.path().join("disk.dmg");
    std::fs::write(&dmg, [&[0; 4096][..], trailer, &[0; 500]].concat()).or_fail("write a dmg");
    let mut said = String::new();
    for source in [&origin.url("/disk?token=secret"), text(&child), text(&dmg)] {
        for options in [&[][..], &["--json", "--overhead", "0.055"]] {
            let finished = importer(["info", source]).args(options.to_vec()).run();
            finished.assert_success(source);
            assert_eq!(finished.stderr, "", "{source}");
            said += &finished.stdout;
        }
    }
    let said = said.replace(&origin.url(""), "{origin}").replace(text(folder.path()), "{folder}");
    crate::assert_snapshot("info", &said);
    import(text(&child), &folder.path().join("disk.img")).run().assert_failure(4, "/etc/base.img");
}

#[test]
#[ignore = "server: fish, zsh"]
fn shells_complete_subcommands_options_and_values() {
    let commands =
        "apply check compare completions convert help import info man pack restore unpack";
    let commands: Vec<_> = commands.split(' ').collect();
    let formats = ["qcow2", "raw", "vdi", "verbatim", "vhd", "vhdx", "vmdk"];
    for (words, expected) in [
        (&[""][..], &commands[..]),
        (&["imp"], &["import"]),
        (&["import", "--ch"], &["--checkpoint", "--checksum"]),
        (&["--memory", "1Gi", "import", "a.qcow2", "--ch"], &["--checkpoint", "--checksum"]),
        (&["import", "--progress", ""], &["auto", "bar", "json", "none", "plain"]),
        (&["import", "--format", ""], &formats),
        (&["import", "Cargo"], &["Cargo.toml"]),
        (&["import", "--password-file", "Cargo"], &["Cargo.toml"]),
        (&["import", "https://example.org/a", "Cargo"], &["Cargo.toml"]),
        (&["import", "--scratch", "sr"], &["src"]),
        (&["import", "--user", ""], &[]),
        (&["completions", "z"], &["zsh"]),
    ] {
        assert_completion(crate::BINARY, words, expected);
    }
}

#[test]
fn secrets_come_from_files_and_never_reach_the_log() {
    let folder = folder();
    let (password, header) = (folder.path().join("password"), folder.path().join("header"));
    std::fs::write(&password, "hunter2\n").or_fail("write");
    std::fs::write(&header, "X-Token: swordfish\n").or_fail("write");
    let script = Script {
        basic_auth: Some("joe:hunter2".to_owned()),
        required_header: Some(("x-token".to_owned(), "swordfish".to_owned())),
        ..Script::new(disk::content(1, MIB))
    };
    let authority = Authority::new().or_fail("an authority");
    let tls = authority.server_config().or_fail("TLS");
    let origin = Origin::start_tls(script, tls).or_fail("an origin");
    let certs = folder.path().join("certs");
    std::fs::create_dir(&certs).or_fail("a folder");
    let certificate = certs.join("ca.pem");
    std::fs::write(&certificate, authority.pem()).or_fail("write");
    let fetch = |trust: &[&str]| {
        import(&origin.url("/disk"), &folder.path().join("disk.img"))
            .args(["--user", "joe", "-vvv", "--force", "--password-file", text(&password)])
            .args(["--secret-header-file", text(&header)])
            .args(trust)
            .run()
    };
    for trust in
        [&["--cacert", text(&certs)][..], &["--cacert", text(&certificate)], &["--insecure"]]
    {
        let finished = fetch(trust);
        finished.assert_success("authenticated");
        for secret in ["hunter2", "swordfish", "am9lOmh1bnRlcjI"] {
            assert!(!finished.stderr.contains(secret), "{secret}\n{}", finished.stderr);
        }
    }
    fetch(&[]).assert_failure(3, ": its certificate is not signed by a trusted authority");
}
