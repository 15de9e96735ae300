//! Command lines of the released proxy and of its development program: options and messages.

// Cargo does not run the unit tests in an example that is a program, so they are included here.
#[allow(dead_code, reason = "only the unit tests are used")]
#[path = "../../examples/uploadproxy-dev/args.rs"]
mod args;
#[allow(dead_code, reason = "only the unit tests are used")]
#[path = "../../examples/uploadproxy-dev/routes.rs"]
mod routes;

use std::path::Path;

use crate::BINARY;
use rustix::process::Signal;
use testkit::fail::OrFail;
use testkit::process::{Program, Running};
use testkit::shells::assert_completion;
use testkit::upload_proxy::{beside, development};
use testkit::{disk, tools};

/// Starts `dev` in a folder and waits until it listens. Also returns the address of the metrics.
fn start_dev(dir: &Path) -> (Running, String) {
    start_dev_at("127.0.0.1:0", dir)
}

fn start_dev_at(listen: &str, dir: &Path) -> (Running, String) {
    beside(BINARY, "cdi-uploadserver");
    let running = Program::new(development(BINARY))
        .args(["dev", "--listen", listen, "--metrics", "127.0.0.1:0", "--dir"])
        .arg(dir)
        .start();
    let line = running.wait_for_line("serving metrics");
    let metrics = line.split("address=").nth(1).or_fail(&line).trim().to_owned();
    running.wait_for_line("Ctrl-C ends both servers");
    (running, metrics)
}

/// Returns the curl command that `dev` has printed.
fn printed_command(running: &Running) -> String {
    let log = running.stderr_so_far();
    let command = log.lines().map(str::trim).find(|line| line.starts_with("curl "));
    command.or_fail(&log).to_owned()
}

fn shell(command: &str) -> String {
    tools::run("sh", ["-c", command])
}

#[test]
#[ignore = "tools: qemu-img"]
fn dev_prints_a_working_upload_command_and_ends_both_servers() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let dir = folder.path().join("dev");
    let (running, metrics) = start_dev(&dir);
    let command = printed_command(&running);
    let image = folder.path().join("image.qcow2");
    let raw = folder.path().join("image.raw");
    std::fs::write(&raw, disk::content(1, 3 << 20)).or_fail("an image");
    shell(&format!("qemu-img convert -f raw -O qcow2 -c {} {}", raw.display(), image.display()));
    let base =
        command.rsplit(' ').next().or_fail("a URL").trim_end_matches("/v1beta1/upload").to_owned();
    let ca = dir.join("certs/ca.crt");
    let ask =
        |path: &str| shell(&format!("curl -sS --fail --cacert {} {base}{path}", ca.display()));
    assert_eq!((ask("/readyz").as_str(), ask("/healthz").as_str()), ("OK", "OK"));
    assert!(ask("/").contains("<title>"));

    shell(&command.replace("IMAGE", &image.display().to_string()).replace("curl ", "curl -sS "));
    let written = std::fs::read(dir.join("disk.img")).or_fail("the disk");
    assert!(written == std::fs::read(&raw).or_fail("the image"), "the disk differs");

    let text = shell(&format!("curl -sSk https://{metrics}/"));
    let bytes = std::fs::metadata(&image).or_fail("the image").len();
    for line in [
        "cdi_uploadproxy_requests_total{outcome=\"completed\"} 1".to_owned(),
        "cdi_uploadproxy_requests_total{outcome=\"failed\"} 0".to_owned(),
        "cdi_uploadproxy_active_uploads 0".to_owned(),
        format!("cdi_uploadproxy_received_bytes_total {bytes}"),
        format!("cdi_uploadproxy_request_size_bytes_sum {bytes}"),
        "cdi_uploadproxy_request_duration_seconds_count 1".to_owned(),
        "cdi_uploadproxy_refused_connections_total 0".to_owned(),
    ] {
        assert!(text.contains(&line), "no {line:?} in {text}");
    }
    assert!(!ask_status(&ca, &format!("{base}/metrics")).starts_with('2'), "metrics are public");

    running.signal(Signal::INT);
    let finished = running.wait();
    finished.assert_success("dev");
    assert_eq!(
        shell(&format!("pgrep -f '[c]di-uploadserver.*{}' || true", dir.display())),
        "",
        "something is left"
    );
}

fn ask_status(ca: &Path, url: &str) -> String {
    shell(&format!("curl -sS -o /dev/null -w '%{{http_code}}' --cacert {} {url}", ca.display()))
}

#[test]
fn dev_prints_a_url_that_curl_accepts_for_every_listen_address() {
    for listen in ["127.0.0.1:0", "[::1]:0", ":0"] {
        let folder = tempfile::tempdir().or_fail("a folder");
        let (running, _) = start_dev_at(listen, folder.path());
        let command = printed_command(&running);
        let url = command.rsplit(' ').next().or_fail(&command);
        let ready = url.replace("/v1beta1/upload", "/readyz");
        assert_eq!(shell(&format!("curl -sSgk --fail '{ready}'")), "OK", "{listen}: {url}");
        running.signal(Signal::TERM);
        running.wait().assert_success("dev");
    }
}

#[test]
fn dev_reuses_its_keys() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let keys = || std::fs::read(folder.path().join("token.pub")).or_fail("a key");
    let (first, _) = start_dev(folder.path());
    let before = keys();
    first.signal(Signal::TERM);
    first.wait();
    let (second, _) = start_dev(folder.path());
    assert!(before == keys());
    let token = Program::new(development(BINARY))
        .args(["token", "--pvc", "dev", "--key"])
        .arg(folder.path().join("token.key"))
        .run();
    token.assert_success("token");
    let command = printed_command(&second);
    let printed = command.split("Bearer ").nth(1).and_then(|rest| rest.split('\'').next());
    let mine = command.replace(printed.or_fail(&command), token.stdout.trim());
    let question = mine
        .replace("-X POST -T IMAGE", "--silent --head")
        .replace("/v1beta1/upload", "/v1beta1/upload-async");
    shell(&question);
    second.signal(Signal::TERM);
    second.wait().assert_success("dev");
}

#[test]
fn the_help_of_serve_shows_a_route() {
    let help = Program::new(development(BINARY)).args(["serve", "--help"]).run();
    assert!(help.stdout.contains("[[route]]") && help.stdout.contains("--limit-rate"), "{help:?}");
}

#[test]
fn the_released_program_has_no_development_commands() {
    let run = |arguments: &[&str]| Program::new(BINARY).args(arguments).run();
    for (arguments, output) in [
        (&["--help"][..], "APISERVER_PUBLIC_KEY"),
        (&["--version"], "cdi-uploadproxy"),
        (&["man"], ".TH cdi-uploadproxy"),
    ] {
        let finished = run(arguments);
        finished.assert_success(output);
        assert!(finished.stdout.contains(output), "{finished:?}");
    }
    run(&[]).assert_failure(2, "Usage: cdi-uploadproxy");
    for command in ["serve", "token", "dev"] {
        run(&[command]).assert_failure(2, "unrecognized subcommand");
    }
}

#[test]
#[ignore = "server: fish, zsh"]
fn shells_complete_the_commands_of_the_program() {
    assert_completion(BINARY, &[""], &["completions", "help", "man"]);
    assert_completion(BINARY, &["completions", "--h"], &["--help"]);
    assert_completion(BINARY, &["completions", "f"], &["fish"]);
}
