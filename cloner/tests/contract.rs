//! What CDI's controllers and scripts see of the source pod of a clone: variables, flags, requests, messages, exit codes, metrics.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;
use testkit::certs::{Authority, Identity, KeyKind};
use testkit::clone_pod::ClonePod;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::{Finished, Program};
use testkit::tools;
use testkit::upstream::{End, Reads, Says, Script, Then, Upstream, answer};

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-cloner");

const MIB: u64 = 1 << 20;

/// klog's `Fatal`.
const FATAL: i32 = 255;

/// A volume, and a server that does what it is told.
struct Scene {
    folder: TempDir,
    authority: Authority,
    client: Identity,
    upstream: Upstream,
}

impl Scene {
    /// The first of `scripts` is for the question of what the server takes.
    fn new(scripts: Vec<Script>) -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        let authority = Authority::new().or_fail("an authority");
        let client = authority
            .client("source/pvc-target/pvc", KeyKind::Ecdsa)
            .or_fail("a client");
        let scene = Self {
            upstream: Upstream::start(&authority, &[], scripts),
            folder,
            authority,
            client,
        };
        scene.fill(3);
        scene
    }

    /// The disk has so many MiB, none of which is zero.
    fn fill(&self, mib: usize) {
        let bytes = disk::content(1, MIB).repeat(mib);
        fs::write(self.disk(), bytes).or_fail("a disk");
    }

    /// Of upstream: it says nothing about what it takes, and then follows `script`.
    fn of_cdi(script: Script) -> Self {
        Self::new(vec![Script::status(200, ""), script])
    }

    fn disk(&self) -> PathBuf {
        self.folder.path().join("disk.img")
    }

    fn url(&self) -> String {
        format!("https://{}/v1beta1/upload", self.upstream.address())
    }

    fn pod(&self) -> ClonePod {
        ClonePod::new(BINARY, &self.authority, &self.client, &self.url())
    }
}

fn start(pod: &ClonePod) -> Finished {
    pod.program().run()
}

/// The start-up face with only these variables, under the name of CDI's script.
fn script(folder: &Path, variables: &[(&str, &str)]) -> Finished {
    let link = folder.join("cloner_startup.sh");
    if !link.exists() {
        symlink(BINARY, &link).or_fail("a link");
    }
    let program = Program::new(link);
    variables
        .iter()
        .fold(program, |program, (name, value)| program.env(name, *value))
        .run()
}

#[test]
fn the_script_needs_its_variables_and_prints_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let disk = folder.path().join("disk");
    File::create(&disk).unwrap().set_len(7 * MIB).unwrap();
    let disk = disk.to_str().unwrap();
    for (variables, code, printed, said) in [
        (&[][..], 1, "", "VOLUME_MODE missing"),
        (&[("VOLUME_MODE", "block")], 1, "", "MOUNT_POINT missing"),
        (
            &[("VOLUME_MODE", "tape"), ("MOUNT_POINT", path)],
            1,
            &*format!("VOLUME_MODE=tape\nMOUNT_POINT={path}\n"),
            "it must be block or filesystem",
        ),
        (
            &[("VOLUME_MODE", "block"), ("MOUNT_POINT", disk)],
            FATAL,
            &*format!(
                "VOLUME_MODE=block\nMOUNT_POINT={disk}\nUPLOAD_BYTES={}\n",
                7 * MIB
            ),
            "Error getting env var CLIENT_KEY",
        ),
    ] {
        let finished = script(folder.path(), variables);
        finished.assert_failure(code, said);
        assert_eq!(finished.stdout, printed);
    }
}

#[test]
fn the_estimate_is_that_of_du() {
    let folder = tempfile::tempdir().unwrap();
    let volume = folder.path().join("volume");
    fs::create_dir_all(volume.join("nested")).unwrap();
    fs::write(volume.join("nested/file"), disk::content(1, MIB + 5)).unwrap();
    fs::hard_link(volume.join("nested/file"), volume.join("same")).unwrap();
    File::create(volume.join("disk.img"))
        .unwrap()
        .set_len(50 * MIB)
        .unwrap();
    let mount = volume.to_str().unwrap();
    let estimate = |preallocation: &[(&str, &str)]| {
        let variables = [("VOLUME_MODE", "filesystem"), ("MOUNT_POINT", mount)];
        let finished = script(folder.path(), &[&variables, preallocation].concat());
        let line = finished
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix("UPLOAD_BYTES="));
        line.unwrap().parse::<u64>().unwrap()
    };
    let du = |option: &str| {
        let printed = tools::run("du", ["-s", "--block-size=1", option, mount]);
        printed.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    for preallocation in [&[][..], &[("PREALLOCATION", "")], &[("PREALLOCATION", "false")]] {
        assert_eq!(estimate(preallocation), du("--one-file-system"));
    }
    // Whether `du` counts what directories have themselves depends on its version.
    let apparent = du("--apparent-size");
    let directories = volume.metadata().unwrap().size() + volume.join("nested").metadata().unwrap().size();
    let ours = estimate(&[("PREALLOCATION", "true")]);
    assert!(
        ours == apparent || ours == apparent + directories,
        "{ours}, du says {apparent}"
    );
}

#[test]
fn flags_are_checked_before_the_environment_and_the_environment_in_upstreams_order() {
    let block = ["-content-type", "blockdevice-clone", "-mount", "/dev/null"];
    let run = |args: &[&str], variables: &[&str]| {
        let program = Program::new(BINARY).args(args.iter().copied());
        variables
            .iter()
            .fold(program, |program, name| program.env(name, "x"))
            .run()
    };
    for (args, code, said) in [
        (&["-v=3"][..], FATAL, "Invalid content-type \"\""),
        (
            &["-content-type", "tape", "-mount", "/x"],
            FATAL,
            "Invalid content-type \"tape\"",
        ),
        (&["--content-type=filesystem-clone"], FATAL, "Invalid mount \"\""),
        (&["-upload-bytes", "many"], 2, "-upload-bytes"),
        (&["-pod"], 2, "flag provided but not defined: -pod"),
        (&["-help"], 0, "-upload-bytes"),
    ] {
        run(args, &[]).assert_failure(code, said);
    }
    let mandatory = ["CLIENT_KEY", "CLIENT_CERT", "SERVER_CA_CERT", "UPLOAD_URL"];
    for (index, name) in mandatory.iter().enumerate() {
        run(&block, &mandatory[..index]).assert_failure(FATAL, &format!("Error getting env var {name}"));
    }
    run(&block, &mandatory).assert_failure(FATAL, "Error reading the volume");
}

#[test]
fn a_server_of_cdi_gets_what_cdis_cloner_sends() {
    for (preallocation, message) in [
        ("false", "Clone Complete"),
        ("", "Clone Complete"),
        ("perhaps", "Clone Complete"),
        ("true", "Clone Complete, Preallocation applied"),
    ] {
        let scene = Scene::of_cdi(Script::status(200, ""));
        for files in [false, true] {
            let pod = scene.pod().env("PREALLOCATION", preallocation);
            let (pod, content) = if files {
                (pod.files(scene.folder.path()), "filesystem-clone")
            } else {
                (pod.block(&scene.disk()), "blockdevice-clone")
            };
            let finished = start(&pod);
            finished.assert_success(content);
            assert_eq!(pod.message().as_deref(), Some(message));
            let header = format!("Set header to {content}");
            for line in [&header, "clone complete", "Wrote "] {
                assert!(
                    finished.stderr.contains(line),
                    "no {line:?} in {}",
                    finished.stderr
                );
            }
            let seen = scene.upstream.seen();
            let clone = seen.last().unwrap();
            assert_eq!(clone.request_line(), "POST /v1beta1/upload HTTP/1.1");
            assert_eq!(clone.headers("x-cdi-content-type"), [content]);
            assert_eq!(clone.headers("transfer-encoding"), ["chunked"]);
            assert_eq!(clone.headers("host"), [scene.upstream.address().to_string()]);
            assert!(clone.headers("x-cdi-workers-clone").is_empty());
            assert_eq!(clone.end(), Some(End::Complete));
            assert!(clone.body().starts_with(b"\xff\x06\0\0sNaPpY"));
        }
        assert_eq!(
            scene.upstream.seen()[0].request_line(),
            "HEAD /v1beta1/upload-async HTTP/1.1"
        );
    }
}

/// Whatever the answer to the question, a server that does not say it takes frames gets none.
#[test]
fn an_odd_answer_to_the_question_is_no_failure() {
    let odd = "HTTP/1.1 200 OK\r\nx-cdi-workers-clone: frames-2\r\nContent-Length: 0\r\n\r\n";
    let failed = "HTTP/1.1 500 No\r\nx-cdi-workers-clone: frames-1\r\nContent-Length: 0\r\n\r\n";
    for question in [
        Script::answer(odd),
        Script::answer(failed),
        Script::answer("SSH-2.0\r\n"),
        Script::stop(Reads::Head, Then::Reset),
        Script::stop(Reads::Head, Then::Close),
        Script::stop(Reads::Head, Then::Hang),
    ] {
        let scene = Scene::new(vec![question, Script::status(200, "")]);
        let pod = scene.pod().block(&scene.disk());
        start(&pod).assert_success("clone");
        let seen = scene.upstream.seen();
        assert!(seen[1].body().starts_with(b"\xff\x06\0\0sNaPpY"));
    }
}

#[test]
fn a_server_that_takes_frames_gets_them() {
    let ours = "HTTP/1.1 200 OK\r\nX-Cdi-Workers-Clone: frames-1\r\nContent-Length: 0\r\n\r\n";
    let scene = Scene::new(vec![Script::answer(ours), Script::status(200, "")]);
    start(&scene.pod().block(&scene.disk())).assert_success("clone");
    let seen = scene.upstream.seen();
    assert_eq!(seen[1].headers("x-cdi-workers-clone"), ["frames-1"]);
    assert_eq!(seen[1].headers("x-cdi-content-type"), ["blockdevice-clone"]);
    assert!(seen[1].body().starts_with(b"cdifrm1\n"));
}

#[test]
fn a_refusal_is_told_also_when_it_comes_early() {
    for (status, sentence, expected) in [
        (503, "", "Unexpected status code 503"),
        (401, "", "Unexpected status code 401"),
        (409, "", "Unexpected status code 409"),
        (307, "", "Unexpected status code 307"),
        (
            500,
            "Saving stream failed:\nno space left on device",
            "Unexpected status code 500: Saving stream failed: no space left on device",
        ),
    ] {
        for early in [true, false] {
            let script = if early {
                Script::early(answer(status, sentence))
            } else {
                Script::status(status, sentence)
            };
            let scene = Scene::of_cdi(script);
            // More than lies in any buffer on the way.
            scene.fill(24);
            let pod = scene.pod().block(&scene.disk());
            start(&pod).assert_failure(FATAL, expected);
            assert_eq!(pod.message(), None);
        }
    }
}

#[test]
fn success_before_all_is_sent_is_none() {
    let scene = Scene::of_cdi(Script {
        reads: Reads::Part(MIB),
        says: Says::Bytes(answer(200, "")),
        then: Then::Hang,
    });
    scene.fill(64);
    let pod = scene.pod().block(&scene.disk());
    start(&pod).assert_failure(FATAL, "the server answered 200 OK before all was sent");
    assert_eq!(pod.message(), None);
}

#[test]
fn a_connection_that_breaks_is_an_error_with_the_url() {
    for then in [Then::Reset, Then::Close] {
        for reads in [Reads::Head, Reads::Part(MIB), Reads::Everything] {
            let scene = Scene::of_cdi(Script::stop(reads, then));
            let pod = scene.pod().block(&scene.disk());
            let finished = start(&pod);
            finished.assert_failure(FATAL, &format!(" POSTing to {}", scene.url()));
            assert!(finished.stderr.contains("Error "), "{}", finished.stderr);
            assert_eq!(pod.message(), None);
        }
    }
}

#[test]
fn nobody_but_the_right_server_gets_anything() {
    let scene = Scene::of_cdi(Script::status(200, ""));
    let other = Authority::new().unwrap();
    let stranger = other.client("source/pvc-target/pvc", KeyKind::Ecdsa).unwrap();
    let block = |pod: ClonePod| pod.block(&scene.disk());
    let [nobody] = testkit::ports::free();
    let nowhere = format!("https://{nobody}/v1beta1/upload");
    for (pod, sentence) in [
        // We do not know the server; the server does not know us.
        (
            ClonePod::new(BINARY, &other, &scene.client, &scene.url()),
            "certificate",
        ),
        (
            ClonePod::new(BINARY, &scene.authority, &stranger, &scene.url()),
            " POSTing to ",
        ),
        (
            ClonePod::new(BINARY, &scene.authority, &scene.client, &nowhere),
            "connect: connection refused POSTing to ",
        ),
        (
            scene.pod().env("UPLOAD_URL", "http://127.0.0.1:1/"),
            "is not the https URL",
        ),
        (
            scene.pod().env("SERVER_CA_CERT", "no PEM"),
            "there is no certificate",
        ),
        (
            scene.pod().env("CLIENT_CERT", "no PEM"),
            "Error creating http client",
        ),
        (
            scene.pod().env("CLIENT_KEY", "secret"),
            "Error creating http client",
        ),
    ] {
        let pod = block(pod);
        let finished = start(&pod);
        finished.assert_failure(FATAL, sentence);
        assert!(!finished.stderr.contains("secret"), "{}", finished.stderr);
        assert_eq!(pod.message(), None);
    }
    assert!(scene.upstream.seen().is_empty());
}

/// The files of sysfs have fewer bytes than they say.
#[test]
fn a_volume_that_cannot_be_read_breaks_the_connection() {
    let scene = Scene::of_cdi(Script::status(200, ""));
    let pod = scene.pod().files(Path::new("/sys/class/net/lo"));
    let finished = start(&pod);
    finished.assert_failure(FATAL, "Error reading the volume: /sys/class/net/lo/");
    assert!(
        finished
            .stderr
            .contains("it had 4096 bytes, and now ends at byte"),
        "{}",
        finished.stderr
    );
    assert_eq!(pod.message(), None);
    let ended =
        |seen: &[std::sync::Arc<testkit::upstream::Seen>]| seen.iter().all(|seen| seen.end().is_some());
    let seen = scene.upstream.wait_for("the end of the request", ended);
    assert!(seen.iter().skip(1).all(|clone| clone.end() == Some(End::Aborted)));
}

/// What the controller's `kubevirt_cdi_clone_progress_total\{ownerUID="uid"\} (\d{1,3}\.?\d*)` would capture.
fn controller_reads(text: &str) -> Option<f64> {
    let (_, rest) = text.split_once("\nkubevirt_cdi_clone_progress_total{ownerUID=\"uid\"} ")?;
    let number: String = rest
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    assert!(
        number.split('.').next().is_some_and(|whole| whole.len() <= 3),
        "{number}"
    );
    number.parse().ok()
}

#[test]
fn progress_is_scraped_while_a_server_waits_and_a_signal_ends_it() {
    let scene = Scene::of_cdi(Script::stop(Reads::Part(MIB), Then::Hang));
    scene.fill(64);
    let pod = scene.pod().block(&scene.disk());
    let running = pod.program().start();
    running.wait_for_line("Set header to");
    let started = Instant::now();
    let percent = loop {
        match controller_reads(&pod.scrape()) {
            Some(percent) if percent > 0.0 => break percent,
            _ if started.elapsed() > Duration::from_secs(20) => panic!("no progress: {}", pod.scrape()),
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    assert!(percent < 90.0, "{percent}");
    let signalled = Instant::now();
    running.signal(Signal::TERM);
    let finished = running.wait();
    assert_eq!(finished.code(), 143, "{}", finished.stderr);
    assert!(signalled.elapsed() < Duration::from_secs(5));
    assert_eq!(pod.message(), None);
}

#[test]
fn a_clone_without_an_owner_has_no_series_and_works() {
    let scene = Scene::of_cdi(Script::stop(Reads::Part(MIB), Then::Hang));
    scene.fill(64);
    let pod = scene.pod().env("OWNER_UID", "").block(&scene.disk());
    let running = pod.program().start();
    running.wait_for_line("Set header to");
    assert!(!pod.scrape().contains("kubevirt_cdi_clone_progress_total{"));
    running.signal(Signal::INT);
    assert_eq!(running.wait().code(), 130);
}
