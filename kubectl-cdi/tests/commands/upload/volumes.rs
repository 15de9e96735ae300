//! Whole uploads to claims.

use std::path::Path;

use rustix::process::Signal;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::Program;
use testkit::terminal::Terminal;
use testkit::tools;

use crate::upload::{BINARY, NAMESPACE, Scene, api, last_event};

/// A proxy that is not contacted.
const PROXY: &str = "--uploadproxy-url=https://localhost:1";

#[test]
#[ignore = "server: Kubernetes"]
fn a_raw_disk_is_sent_without_its_zeros() {
    let scene = Scene::new();
    let mut content = disk::sparse_content(3, 64 << 20, 8);
    content.truncate(64 << 20);
    let image = scene.image(&content);
    let given = api().tokens.given();
    let running = scene.upload(&image).start();
    let sent = |event: &serde_json::Value| event["sent_bytes"].as_u64().unwrap();
    let finished = scene.finish(running, &content);
    let event = last_event(&finished);
    assert_eq!(event["event"], "done", "{event}");
    assert_eq!(event["resumable"], true);
    assert!(sent(&event) < 64 << 19, "{event}");
    assert!(api().tokens.given() > given);
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_compressed_image_is_sent_as_it_is() {
    let scene = Scene::new();
    let content = disk::content(4, 8 << 20);
    let image = scene.image(&tools::filter("gzip", ["-1c"], &content));
    let length = image.metadata().unwrap().len();
    let running = scene.upload(&image).start();
    let finished = scene.finish(running, &content);
    assert_eq!(last_event(&finished)["sent_bytes"], length);
}

#[test]
#[ignore = "server: Kubernetes"]
fn an_upload_that_the_server_refuses_ends_with_its_message() {
    let scene = Scene::new();
    // The beginning is intact, which is all that the client checks.
    let mut image = tools::filter("gzip", ["-1c"], &disk::content(5, 8 << 20));
    let middle = image.len() / 2;
    image[middle..middle + 64].fill(0xaa);
    let finished = scene.upload(&scene.image(&image)).run();
    finished.assert_failure(4, "the upload server rejected the image: ");
    assert!(finished.stderr.contains("the gzip stream is corrupt"), "{}", finished.stderr);
    assert!(!scene.pod.disk().exists());
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_claim_that_is_too_small_or_filled_is_refused_before_any_byte_is_sent() {
    let scene = Scene::new();
    let image = scene.folder.path().join("large");
    std::fs::File::create(&image).unwrap().set_len(2 << 30).unwrap();
    let finished = scene.upload(&image).run();
    finished
        .assert_failure(5, "the disk has 2147483648 bytes, and of the volume's 1073741824 bytes ");
    let succeeded = Some("Succeeded");
    api().cluster.annotate_pvc(NAMESPACE, &scene.claim, "storage.pod.phase", succeeded);
    let finished = scene.upload(&scene.image(&[0; 512])).run();
    finished.assert_failure(7, "is already filled: delete it first");
    assert_eq!(scene.wire.sent(), 0);
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_volume_that_the_server_finds_too_small_is_deleted_and_a_larger_one_works() {
    let mut scene = Scene::with(|pod| pod.env("UPLOAD_IMAGE_SIZE", "4Mi"));
    let content = disk::content(6, 8 << 20);
    let image = scene.image(&content);
    let target = format!("dv/{}", scene.claim);
    let finished = scene.upload_into(&target, &image).run();
    finished.assert_failure(
        5,
        " is larger than the reported available storage 4194304. A larger PVC is required",
    );
    let removed = format!("{target}, which was created for this upload, was deleted");
    assert!(finished.stderr.contains(&removed), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("upload into a larger one, see --size"),
        "{}",
        finished.stderr
    );
    // As the message advises.
    scene.restart_pod_with(&[("UPLOAD_IMAGE_SIZE", "8Mi")]);
    let upload = scene.upload_into(&target, &image).args(["--size", "8Mi", "--progress", "json"]);
    scene.finish(upload.start(), &content);
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_dry_run_shows_the_volume_and_does_not_create_it() {
    let scene = Scene::new();
    let image = scene.image(&disk::content(1, 3 << 20));
    for place in ["--dry-run=client", "--dry-run=server"] {
        let image = image.to_string_lossy();
        let words = ["upload", &image, "dv/shown", place, "--volume-mode", "Block", "-o", "yaml"];
        let finished = scene.program(&words).run();
        finished.assert_success("a dry run");
        for line in ["kind: DataVolume", "name: shown", "storage: 3Mi", "upload: {}"] {
            assert!(finished.stdout.contains(line), "{}", finished.stdout);
        }
        let words = ["status", "dv/shown"];
        scene.program(&words).run().assert_failure(7, "dv/shown not found");
        // Only the server knows that this claim exists already.
        let target = format!("pvc/{}", scene.claim);
        let finished = scene.program(&["upload", &image, &target, place]).run();
        match place.ends_with("client") {
            true => finished.assert_success("a dry run"),
            false => finished.assert_failure(7, "already exists"),
        }
    }
}

#[test]
#[ignore = "server: Kubernetes"]
fn an_image_with_another_checksum_is_not_uploaded() {
    let scene = Scene::new();
    let image = scene.image(&disk::content(12, 8 << 20));
    let other = format!("sha256:{}", "0".repeat(64));
    let target = format!("dv/{}", scene.claim);
    let finished = scene.upload_into(&target, &image).args(["--checksum", &other]).run();
    finished.assert_failure(6, &format!("checksum mismatch: expected {other}, calculated sha256:"));
    assert!(finished.stderr.contains("; fetch it again, or check --checksum"));
    let removed = format!("{target}, which was created for this upload, was deleted");
    assert!(finished.stderr.contains(&removed), "{}", finished.stderr);
    // The server has not completed the disk, whose first MiB is written last.
    let disk = std::fs::read(scene.pod.disk()).unwrap_or_default();
    assert!(disk.iter().take(1 << 20).all(|byte| *byte == 0), "the disk is complete");
}

#[test]
#[ignore = "server: Kubernetes"]
fn the_size_of_a_compressed_disk_is_found_at_its_end() {
    let scene = Scene::new();
    let packed = |bytes| tools::filter("gzip", ["-1c"], &disk::sparse_content(2, bytes, 8));
    let image = scene.image(&packed(5 << 20));
    let shown = |image: &Path| {
        let image = image.to_string_lossy();
        let words =
            ["upload", &*image, "dv/packed", "--dry-run", "client", "--volume-mode", "Block"];
        scene.program(&words).run()
    };
    let finished = shown(&image);
    finished.assert_success("a dry run");
    assert!(finished.stdout.contains("storage: 5Mi"), "{}", finished.stdout);
    let mut cut = packed(5 << 20);
    cut.truncate(cut.len() / 2);
    shown(&scene.image(&cut)).assert_failure(4, "the gzip stream");
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_new_volume_is_deleted_if_the_upload_fails() {
    let scene = Scene::new();
    let image = scene.image(&disk::content(1, 1 << 20));
    let words = ["upload", &image.to_string_lossy(), "dv/vain", "--timeout", "2s", PROXY];
    let finished = scene.program(&words).args(["--progress", "plain"]).run();
    finished.assert_failure(7, "waiting for CDI to create the claim");
    let line = "kubectl-cdi: waiting for CDI to create the claim\n";
    assert_eq!(finished.stderr.matches(line).count(), 1, "{}", finished.stderr);
    let removed = "dv/vain, which was created for this upload, was deleted";
    assert!(finished.stderr.contains(removed), "{}", finished.stderr);
    let words = ["status", "dv/vain"];
    scene.program(&words).run().assert_failure(7, "dv/vain not found");
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_wait_fits_the_terminal_and_leaves_nothing_on_it() {
    let scene = Scene::new();
    let image = scene.image(&disk::content(1, 1 << 20));
    for (number, columns) in [80, 60, 40].into_iter().enumerate() {
        let target = format!("dv/terminal-{number}");
        let terminal = Terminal::open(columns);
        let running = scene
            .program(&["upload", &image.to_string_lossy(), &target, PROXY])
            .start_on(&terminal);
        // The waiting time is shown only if there is space for it.
        let drawn =
            terminal.wait_for(if columns == 40 { "waiting for CDI to create" } else { " for 2 s" });
        assert!(
            drawn.contains("  0 %  waiting for CDI") && drawn.lines().count() == 1,
            "{columns}: {drawn}"
        );
        terminal.type_interrupt();
        running.signal(Signal::INT);
        assert_eq!(running.wait().code(), 130);
        let left = terminal.screen();
        let sentence = "kubectl-cdi: stopped by SIGINT; resume it with: ";
        assert!(left.starts_with(sentence) && !left.contains('%'), "{columns}: {left}");
    }
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_terminal_is_restored_after_ctrl_c() {
    let scene = Scene::new();
    let image = scene.image(&disk::content(1, 1 << 20));
    let upload = format!(
        "{BINARY} upload {} dv/terminal {PROXY} --namespace {NAMESPACE} --kubeconfig {}",
        image.display(),
        api().cluster.administrator().display()
    );
    // Long enough for the bar to appear.
    let interrupted = format!("timeout --foreground --preserve-status -s INT 3 {upload}");
    let line = format!("stty -a; echo BEGIN; {interrupted}; echo code $?; stty -a");
    let finished = Program::new("script")
        .args(["--quiet", "--command", &line, "/dev/null"])
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh")
        .run();
    finished.assert_success("a terminal");
    let (before, rest) = finished.stdout.split_once("BEGIN").or_fail(&finished.stdout);
    let (said, after) = rest.split_once("code 130").or_fail(&finished.stdout);
    assert_eq!(before.trim(), after.trim(), "{said}");
    assert!(said.contains("waiting for CDI to create the claim"), "{said:?}");
    // DEC private mode 25 shows and hides the cursor.
    let count = |what: &str| said.matches(what).count();
    assert!(count("\x1b[?25l") <= count("\x1b[?25h"), "{said:?}");
    let (bar, end) = said.split_once("kubectl-cdi: stopped by SIGINT").or_fail(said);
    // The bar is gone: its line was erased from the first column to the end of the screen.
    assert!(bar.ends_with("\r\x1b[J"), "{said:?}");
    let command = format!("; resume it with: kubectl cdi upload {} dv/terminal ", image.display());
    assert!(end.starts_with(&command) && end.trim_end().ends_with("--no-create"), "{end:?}");
    // The volume stays.
    let stays = api().cluster.data_volume(NAMESPACE, "terminal");
    assert_eq!(stays["metadata"]["name"], "terminal");
}
