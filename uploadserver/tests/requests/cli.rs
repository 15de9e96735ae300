//! The server on a laptop: `cdi-uploadserver serve`.

use std::path::Path;

use serde_json::Value;
use testkit::loopdev::LoopDevice;
use testkit::process::{Program, Running};
use testkit::shells::assert_completion;
use testkit::terminal::Terminal;
use testkit::{disk, tools};

/// A server that creates its certificates in `folder/certs`; `--dir` or `--device` is `target`.
fn serve(folder: &Path, options: &[&str], target: &Path) -> Program {
    Program::new(crate::BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--self-signed"])
        .arg(folder.join("certs"))
        .args(options.iter().copied())
        .arg(target)
}

/// Waits until a server listens, and returns its address.
fn address(running: &Running) -> String {
    let hint = running.wait_for_line("Upload with: ");
    let url = hint.split("https://").nth(1).unwrap_or_default();
    url.split('/').next().unwrap_or_default().to_owned()
}

/// Uploads with curl and returns the status.
fn curl(certs: &Path, with_certificate: bool, address: &str, image: &Path) -> String {
    let path = |name: &str| certs.join(name).to_string_lossy().into_owned();
    let mut arguments =
        ["-sS", "-o", "/dev/null", "-w", "%{http_code}", "--cacert"].map(str::to_owned).to_vec();
    arguments.push(path("ca.crt"));
    if with_certificate {
        arguments.extend(["--cert".into(), path("client.crt"), "--key".into(), path("client.key")]);
    }
    arguments.extend([
        "--data-binary".to_owned(),
        format!("@{}", image.display()),
        format!("https://{address}/v1beta1/upload"),
    ]);
    tools::run("curl", arguments)
}

#[test]
fn curl_uploads_with_the_certificates_that_serve_creates() {
    let folder = tempfile::tempdir().unwrap();
    let (certs, target, image) =
        (folder.path().join("certs"), folder.path().join("target"), folder.path().join("image"));
    std::fs::create_dir(&target).unwrap();
    let content = disk::content(1, 3 << 20);
    std::fs::write(&image, &content).unwrap();
    let mut authority = None;
    for insecure in [false, true] {
        let options: &[_] = if insecure { &["--insecure"] } else { &[] };
        let options = [options, &["--once", "--dir"]].concat();
        let running = serve(folder.path(), &options, &target).start();
        let address = address(&running);
        // Existing certificates are kept.
        let pem = std::fs::read(certs.join("ca.crt")).unwrap();
        assert_eq!(*authority.get_or_insert(pem.clone()), pem);
        if !insecure {
            assert_eq!(curl(&certs, false, &address, &image), "401");
        }
        assert_eq!(curl(&certs, !insecure, &address, &image), "200");
        running.wait().assert_success("serve --once");
        assert!(std::fs::read(target.join("disk.img")).unwrap() == content);
        std::fs::remove_file(target.join("disk.img")).unwrap();
    }
}

#[test]
fn the_log_is_json_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let (certs, image) = (folder.path().join("certs"), folder.path().join("image"));
    let content = disk::content(1, 3 << 20);
    std::fs::write(&image, &content).unwrap();
    let options = ["--once", "--insecure", "--log-format", "json", "--dir"];
    let running = serve(folder.path(), &options, folder.path()).start();
    let address = address(&running);
    assert_eq!(curl(&certs, false, &address, &image), "200");
    let finished = running.wait();
    finished.assert_success("serve --once");
    let objects = finished.stderr.lines().filter(|line| line.starts_with('{'));
    let lines: Vec<Value> = objects.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["virtual_size"] == content.len()), "{lines:?}");
    assert!(lines.iter().all(|line| line["caller"].is_string()), "{lines:?}");
}

#[test]
fn a_terminal_shows_a_running_upload() {
    for columns in [80, 40] {
        let folder = tempfile::tempdir().unwrap();
        let (certs, image) = (folder.path().join("certs"), folder.path().join("image"));
        std::fs::write(&image, disk::content(1, 3 << 20)).unwrap();
        let terminal = Terminal::open(columns);
        let program = serve(folder.path(), &["--once", "--insecure", "--dir"], folder.path());
        let running = program.start_on(&terminal);
        let hint = terminal.wait_for("/v1beta1/upload");
        let url =
            hint.split_whitespace().find(|word| word.starts_with("https://")).unwrap().to_owned();
        let client = Program::new(tools::find("curl"))
            .args(["-sS", "--limit-rate", "2M", "--cacert"])
            .arg(certs.join("ca.crt"))
            .arg("-T")
            .arg(&image)
            .arg(&url)
            .start();
        let drawn = terminal.wait_for(" left");
        assert!(drawn.contains('█') && drawn.contains(" %"), "{columns}: {drawn}");
        client.wait().assert_success("curl");
        running.wait().assert_success("serve --once");
        let left = terminal.screen();
        assert!(!left.contains('█') && left.contains(" bytes, wrote "), "{columns}: {left:?}");
    }
}

#[test]
#[ignore = "root: loop devices"]
fn one_upload_after_another_replaces_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let certs = folder.path().join("certs");
    let image = folder.path().join("image");
    let device = LoopDevice::new(folder.path(), 4 << 20, 512);
    let running = serve(folder.path(), &["--insecure", "--device"], device.path()).start();
    let address = address(&running);
    for seed in 1..4 {
        let content = disk::content(seed, 4 << 20);
        std::fs::write(&image, &content).unwrap();
        assert_eq!(curl(&certs, false, &address, &image), "200");
        assert!(std::fs::read(device.path()).unwrap() == content, "upload {seed}");
    }
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.wait().code(), 143);
}

#[test]
fn a_directory_that_was_made_again_is_outside_the_sandbox() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, image) = (folder.path().join("dir"), folder.path().join("image"));
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(&image, disk::content(1, 1 << 20)).unwrap();
    let running = serve(folder.path(), &["--insecure", "--dir"], &dir).start();
    let address = address(&running);
    std::fs::remove_dir(&dir).unwrap();
    std::fs::create_dir(&dir).unwrap();
    assert_eq!(curl(&folder.path().join("certs"), false, &address, &image), "500");
    let line = running.wait_for_line("Saving stream failed");
    assert!(line.contains("the sandbox allows only the directory that was there"), "{line}");
}

/// Compares the printed lines, because success and failure must not look the same.
#[test]
fn curl_shows_success_or_the_reason_for_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let (certs, image) = (folder.path().join("certs"), folder.path().join("image"));
    let running = serve(folder.path(), &["--insecure", "--dir"], folder.path()).start();
    let address = address(&running);
    let curl = |scheme: &str, args: &[&str], path: &str, bytes: &[u8]| {
        std::fs::write(&image, bytes).unwrap();
        let program =
            Program::new("curl").args(["-sS", "--fail-with-body", "--max-time", "60", "--cacert"]);
        let program = program.arg(certs.join("ca.crt")).args(args.iter().copied());
        program.arg(format!("{scheme}://{address}{path}")).run()
    };
    let file = image.to_str().unwrap();
    let (form, other_name) = (format!("file=@{file}"), format!("image=@{file}"));
    let raw = disk::content(1, 1 << 20);
    let (upload, put) = ("/v1beta1/upload", ["-T", file]);

    let taken = curl("https", &put, upload, &raw);
    taken.assert_success("PUT");
    assert_eq!(taken.stdout, "received 1048576 bytes (raw), a disk of 1048576 bytes\n");
    let log = running.wait_for_line(" bytes, wrote ");
    assert!(log.contains("Read 1048576 bytes, wrote 1048576 bytes to "), "{log}");
    // What a compressed raw image holds is known at its end.
    let packed = tools::filter("gzip", ["-c"], &raw);
    std::fs::remove_file(folder.path().join("disk.img")).unwrap();
    let taken = curl("https", &put, upload, &packed);
    assert!(taken.stdout.ends_with(" bytes (gzip, raw), a disk of 1048576 bytes\n"), "{taken:?}");
    for (args, path, bytes, sentence) in [
        (
            &["-F", &form][..],
            upload,
            &raw[..],
            "this is a form (multipart/form-data): send it to upload-form",
        ),
        (&put, upload, b"", "the upload is empty: 0 bytes were received"),
        (&put, "/v1beta1/nothing", &raw, "404 page not found: upload to /v1beta1/upload"),
        (
            &["-F", &other_name],
            "/v1beta1/upload-form",
            &raw,
            "the form has the part \"image\", but none named \"file\"",
        ),
        (
            &["-F", &form, "-F", &form],
            "/v1beta1/upload-form",
            &raw,
            "the form has several parts named \"file\"",
        ),
    ] {
        let refused = curl("https", args, path, bytes);
        assert_eq!(refused.code(), 22, "{path} {args:?}: {}", refused.stdout);
        assert!(refused.stdout.contains(sentence), "{sentence:?} in {:?}", refused.stdout);
        assert!(refused.stdout.ends_with('\n'), "{:?}", refused.stdout);
    }
    assert!(!folder.path().join("disk.img").exists(), "a refused image leaves no disk");
    let plain = curl("http", &put, upload, &raw);
    assert_eq!(
        (plain.code(), plain.stdout.as_str()),
        (22, "this port speaks HTTPS only: use https://\n")
    );
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.wait().code(), 143);
}

#[test]
#[ignore = "server: fish, zsh"]
fn shells_complete_subcommands_options_and_values() {
    for (arguments, expected) in [
        (&[""][..], &["completions", "help", "man", "serve"][..]),
        (&["serve", "--ce"], &["--cert"]),
        (&["serve", "--cert", "Cargo"], &["Cargo.toml"]),
        (&["serve", "--dir", "sr"], &["src"]),
        (&["completions", "b"], &["bash"]),
    ] {
        assert_completion(crate::BINARY, arguments, expected);
    }
}

#[test]
fn an_option_before_the_subcommand_is_refused() {
    let refused = Program::new(crate::BINARY).args(["-v", "serve"]).env("TLS_KEY_FILE", "x").run();
    refused.assert_failure(2, "options of a subcommand follow its name");
}
