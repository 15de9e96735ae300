//! The command line: help, usage errors, exit codes, and the output that scripts read.

use std::path::{Path, PathBuf};
use std::time::Duration;

use datapath::digest::{DigestAlgorithm, RunningDigest};
use rustix::process::Signal;
use testkit::certs::Authority;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Image, Spec};
use testkit::origin::{Origin, Script};
use testkit::process::{Finished, Program};
use testkit::shells::assert_completion;
use testkit::wait;

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

/// Parses the lines of `--progress json`.
fn events(finished: &Finished) -> Vec<serde_json::Value> {
    finished.stdout.lines().map(|line| serde_json::from_str(line).or_fail(line)).collect()
}

fn no_line_wider_than(limit: usize, text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= limit, "{} characters: {line}", line.chars().count());
    }
}

#[test]
fn help_shows_defaults_examples_and_exit_codes_on_stdout() {
    for (arguments, words) in [
        (
            ["import", "--help"],
            ["[default: 10m]", "Examples:", "Exit codes:", "--secret-header-file <FILE>"],
        ),
        (["info", "--help"], ["[default: 0.06]", "Examples:", "Exit codes:", "--json"]),
    ] {
        let help = importer(arguments).run();
        help.assert_success("help");
        for word in words {
            assert!(help.stdout.contains(word), "{word} is missing in\n{}", help.stdout);
        }
        no_line_wider_than(100, &help.stdout);
        assert_eq!(help.stderr, "");
    }
    let version = importer(["--version"]).run().stdout;
    let begin = concat!("cdi-importer ", env!("CARGO_PKG_VERSION"), " (no release, ");
    // An emulated program (`ci/emulated`) may be for another machine, unknown here.
    let machine = match std::env::var_os(testkit::process::INSTEAD) {
        None => std::env::consts::ARCH,
        Some(_) => "",
    };
    assert!(
        version.starts_with(begin) && version.ends_with(&format!("{machine}-linux)\n")),
        "{version}"
    );
}

#[test]
fn without_arguments_the_help_is_an_error() {
    importer([]).run().assert_failure(2, "Usage: cdi-importer [OPTIONS] <COMMAND>");
}

#[test]
fn options_before_a_subcommand_select_the_command_line() {
    let folder = folder();
    let (source, target) = raw(folder.path());
    let imported = importer(["--memory", "100Mi", "import", text(&source), text(&target)]).run();
    imported.assert_success("--memory in front");
    disk::assert_same(&target, &source, 3 * MIB, "--memory in front");
    // The pod's flags apply without a subcommand, or if `import` is the value of an option.
    importer(["-v", "high"]).run().assert_failure(2, "invalid value \"high\" for flag -v");
    importer(["--memory", "import", "-v=1"])
        .run()
        .assert_failure(2, "flag provided but not defined: -memory");
    importer(["-log_dir", "import", "-v", "high"])
        .run()
        .assert_failure(2, "invalid value \"high\"");
}

#[test]
fn a_mistyped_device_name_creates_no_file() {
    let folder = folder();
    let (source, _) = raw(folder.path());
    let source = text(&source);
    for target in ["/dev/no-such-device", "/dev/no-such-group/volume", "/dev/shm/../no-such-device"]
    {
        importer(["import", source, target])
            .run()
            .assert_failure(2, &format!("device {target} not found"));
        assert!(!Path::new(target).exists(), "{target}");
    }
    let shared = tempfile::tempdir_in("/dev/shm").or_fail("a folder in memory");
    import(source, &shared.path().join("disk.img")).run().assert_success("shared memory");
    importer(["import", source, "-"])
        .run()
        .assert_failure(2, "the target cannot be standard output");
    assert!(!Path::new("-").exists());
}

#[test]
#[ignore = "tools: qemu-img"]
fn an_import_says_what_it_did_and_what_limited_it() {
    let folder = folder();
    let image = qcow2(folder.path());
    let target = folder.path().join("disk.img");
    let finished = import(text(&image.qcow2), &target).run();
    finished.assert_success("import");
    assert!(
        finished.stdout.starts_with("imported qcow2 (ranged): 24.00 MiB virtual, "),
        "{}",
        finished.stdout
    );
    let others: Vec<_> = finished.stdout.lines().skip(1).collect();
    assert!(matches!(others[..], [line] if line.starts_with("limited by: source ")), "{others:?}");
    disk::assert_same(&target, &image.raw, image.virtual_size, "import");

    let again = import(text(&image.qcow2), &target)
        .args(["--force", "--quiet", "--route", "one-pass"])
        .run();
    again.assert_success("--force");
    assert_eq!((again.stdout.as_str(), again.stderr.as_str()), ("", ""));
    disk::assert_same(&target, &image.raw, image.virtual_size, "--force");
}

#[test]
fn standard_input_is_imported_into_a_file_of_the_given_size() {
    let folder = folder();
    let (source, target) = raw(folder.path());
    let plain = std::fs::read(&source).or_fail("read the source");
    let checksum = {
        let gzip = testkit::tools::filter("gzip", ["-c"], &plain);
        let mut digest = RunningDigest::new(DigestAlgorithm::Sha256);
        digest.update(&gzip);
        std::fs::write(&source, gzip).or_fail("replace the source");
        digest.finish_digest()
    };
    let finished = import("-", &target)
        .args(["--size", "5Mi", "--preallocate", "--checksum", &checksum])
        .stdin_file(&source)
        .run();
    finished.assert_success("stdin");
    assert!(
        finished.stdout.contains("imported gzip > raw (raw): 3.00 MiB virtual"),
        "{}",
        finished.stdout
    );
    assert!(finished.stdout.contains(&format!("{checksum} verified")), "{}", finished.stdout);
    let disk = std::fs::read(&target).or_fail("read the disk");
    assert_eq!(disk.len() as u64, 5 * MIB);
    assert!(disk.starts_with(&plain), "the disk begins with the image");
    let allocated =
        std::os::unix::fs::MetadataExt::blocks(&target.metadata().or_fail("metadata")) * 512;
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
    let events = events(&json);
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
    const RATE: u64 = 100_000;
    let folder = folder();
    let source = folder.path().join("source.img");
    // Less than two chunks of 256 KiB. Not zeros, which would be passed on sooner.
    let content = vec![7; 320 << 10];
    std::fs::write(&source, &content).or_fail("write a source");
    let origin = Origin::start(Script { rate: Some(RATE), ..Script::new(content) });
    let origin = origin.or_fail("an origin");
    let slow_server = import(&origin.url("/disk"), &folder.path().join("1"));
    let slow_reader =
        import(text(&source), &folder.path().join("2")).args(["--limit-rate", "100K"]);
    for program in [slow_server, slow_reader] {
        let running = program.args(["--progress", "plain"]).start();
        let finished = running.wait();
        finished.assert_success("import");
        let lines: Vec<&str> = finished.stderr.lines().collect();
        // There is a line per second.
        assert!(lines.len() >= 3, "{lines:?}");
        assert!(lines[1].contains(" of 320.00 KiB read, "), "{lines:?}");
        assert!(!lines[1].contains(", 0 B of "), "{lines:?}");
    }
}

#[test]
fn a_failure_is_the_last_json_event() {
    let folder = folder();
    let finished =
        import("/does/not/exist", &folder.path().join("disk.img")).arg("--progress=json").run();
    let events = events(&finished);
    let last = events.last().or_fail("events");
    assert_eq!(
        (&last["event"], &last["stage"], &last["code"]),
        (&"error".into(), &"source".into(), &3.into())
    );
    assert_eq!(
        format!("cdi-importer: {}\n", last["message"].as_str().or_fail("text")),
        finished.stderr
    );
}

#[test]
#[ignore = "tools: qemu-img"]
fn info_describes_an_image_as_text_and_json() {
    let folder = folder();
    let image = qcow2(folder.path());
    let bytes = std::fs::read(&image.qcow2).or_fail("read the image");
    let origin = Origin::start(Script::new(bytes)).or_fail("an origin");
    let described = importer(["info", &origin.url("/disk?token=secret")]).run();
    described.assert_success("info");
    for row in [
        "format             qcow2\n",
        "virtual size       24.00 MiB (25165824 bytes)\n",
        "snapshots          0\n",
    ] {
        assert!(described.stdout.contains(row), "{row} is missing in\n{}", described.stdout);
    }
    assert!(!described.stdout.contains("secret"), "{}", described.stdout);

    let json = importer(["info", "--json", "--overhead", "0.055", text(&image.qcow2)]).run();
    json.assert_success("info --json");
    let json: serde_json::Value = serde_json::from_str(&json.stdout).or_fail("JSON");
    assert_eq!(json["virtual_size"], image.virtual_size);
    assert_eq!(json["cluster_size"], 64 << 10);
    assert_eq!(json["volume"]["block_bytes"], image.virtual_size);
    // ceil(25165824 * 1.055)
    assert_eq!(json["volume"]["filesystem_bytes"], 26_549_945);
    assert!(json["refused"].is_null());
}

#[test]
#[ignore = "tools: qemu-img"]
fn info_tells_why_an_import_would_be_refused() {
    let folder = folder();
    let image = folder.path().join("child.qcow2");
    let create = [
        "create",
        "-q",
        "-u",
        "-f",
        "qcow2",
        "-F",
        "raw",
        "-b",
        "/etc/base.img",
        text(&image),
        "1M",
    ];
    testkit::tools::run("qemu-img", create);
    let info = importer(["info", text(&image)]).run();
    info.assert_success("info of a refused image");
    assert!(
        info.stdout.contains("would be refused: ") && info.stdout.contains("/etc/base.img"),
        "{}",
        info.stdout
    );
    import(text(&image), &folder.path().join("disk.img")).run().assert_failure(4, "/etc/base.img");
}

#[test]
fn a_signal_stops_an_import_and_removes_what_it_wrote() {
    let folder = folder();
    let (source, target) = raw(folder.path());
    let running =
        import(text(&source), &target).args(["--limit-rate", "100K", "--progress=none"]).start();
    wait::until(|| "no target", || target.exists());
    running.signal(Signal::INT);
    let finished = running.wait();
    finished.assert_failure(130, "stopped by SIGINT");
    // At its rate the import would take half a minute.
    assert!(finished.wall < Duration::from_secs(5), "{:?}", finished.wall);
    assert!(!target.exists());
}

#[test]
fn a_signal_stops_an_import_from_a_silent_pipe() {
    let folder = folder();
    let silence = Duration::from_secs(8);
    let running = import("-", &folder.path().join("disk.img"))
        .stdin(move |_| {
            std::thread::sleep(silence);
            Ok(())
        })
        .start();
    // Nothing shows when the importer waits for the pipe, so this gives it time.
    std::thread::sleep(Duration::from_millis(700));
    running.signal(Signal::TERM);
    let finished = running.wait();
    finished.assert_failure(143, "stopped by SIGTERM");
    assert!(finished.wall < silence, "{:?}", finished.wall);
}

#[test]
#[ignore = "server: fish, zsh"]
fn shells_complete_subcommands_options_and_values() {
    let commands = [
        "apply",
        "check",
        "completions",
        "convert",
        "help",
        "import",
        "info",
        "man",
        "pack",
        "restore",
        "unpack",
    ];
    let formats = ["qcow2", "raw", "vdi", "vhd", "vhdx", "vmdk"];
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
fn the_manual_is_generated() {
    let printed = importer(["man"]).run();
    printed.assert_success("print");
    assert!(printed.stdout.contains(".TH cdi-importer"));
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
    std::fs::write(certs.join("ca.pem"), authority.pem()).or_fail("write");
    let fetch = |trust: &[&str]| {
        import(&origin.url("/disk"), &folder.path().join("disk.img"))
            .args(["--user", "joe", "-vvv", "--force", "--password-file", text(&password)])
            .args(["--secret-header-file", text(&header)])
            .args(trust)
            .run()
    };
    for trust in [&["--ca-dir", text(&certs)][..], &["--insecure"][..]] {
        let finished = fetch(trust);
        finished.assert_success("authenticated");
        for secret in ["hunter2", "swordfish", "am9lOmh1bnRlcjI"] {
            assert!(!finished.stderr.contains(secret), "{secret}\n{}", finished.stderr);
        }
    }
    fetch(&[]).assert_failure(3, "HTTP request errored: ");
}
