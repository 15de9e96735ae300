//! The face for a laptop: `cdi-uploadserver serve`.

use std::path::Path;

use testkit::loopdev::LoopDevice;
use testkit::process::{Program, Running};
use testkit::{disk, tools};

fn serve() -> Program {
    Program::new(crate::BINARY).args(["serve", "--listen", "127.0.0.1:0"])
}

/// Where a server listens.
fn address(running: &Running) -> String {
    let line = running.wait_for_line("Running server on ");
    let rest = line.split("Running server on ").nth(1).unwrap_or_default();
    rest.split_whitespace().next().unwrap_or_default().to_owned()
}

/// Uploads with curl and returns the status.
fn curl(certs: &Path, with_certificate: bool, address: &str, image: &Path) -> String {
    let path = |name: &str| certs.join(name).to_string_lossy().into_owned();
    let mut words = ["-sS", "-o", "/dev/null", "-w", "%{http_code}", "--cacert"].map(str::to_owned).to_vec();
    words.push(path("ca.crt"));
    if with_certificate {
        words.extend(["--cert".to_owned(), path("client.crt"), "--key".to_owned(), path("client.key")]);
    }
    words.extend([
        "--data-binary".to_owned(),
        format!("@{}", image.display()),
        format!("https://{address}/v1beta1/upload"),
    ]);
    tools::run("curl", words)
}

#[test]
fn one_upload_by_curl_with_certificates_made_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let (certs, target, image) =
        (folder.path().join("certs"), folder.path().join("target"), folder.path().join("image"));
    std::fs::create_dir(&target).unwrap();
    let content = disk::content(1, 3 << 20);
    std::fs::write(&image, &content).unwrap();
    let mut authority = None;
    for insecure in [false, true] {
        let program = serve().arg("--once").arg("--dir").arg(&target).arg("--self-signed").arg(&certs);
        let program = if insecure { program.arg("--insecure") } else { program };
        let running = program.start();
        let address = address(&running);
        // Certificates that are there are kept.
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
fn one_upload_after_another_replaces_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let certs = folder.path().join("certs");
    let image = folder.path().join("image");
    let device = LoopDevice::new(folder.path(), 4 << 20, 512);
    let running =
        serve().arg("--device").arg(device.path()).arg("--insecure").arg("--self-signed").arg(&certs).start();
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
fn a_target_that_cannot_be_used_has_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let (certs, disk) = (folder.path().join("certs"), folder.path().join("disk.img"));
    std::fs::write(disk, "a disk").unwrap();
    for (option, target, sentence) in [
        ("--dir", Path::new("/nonexistent"), "it is not a directory"),
        ("--dir", folder.path(), "--force replaces it"),
        ("--device", folder.path(), "it is not a block device"),
    ] {
        let program = serve().arg(option).arg(target);
        let finished = program.arg("--self-signed").arg(&certs).run();
        finished.assert_failure(7, sentence);
    }
}

#[test]
fn wrong_flags_are_refused_with_a_sentence() {
    for (args, sentence) in [
        (&["serve"][..], "--dir"),
        (&["serve", "--dir", "/nonexistent", "--insecure"], "--tls-cert"),
        (&["serve", "--dir", "/tmp", "--device", "/dev/null"], "--device"),
        (&["serve", "--dir", "/tmp", "--self-signed", "/tmp", "--size", "large"], "--size"),
    ] {
        let finished = Program::new(crate::BINARY).args(args.iter().copied()).run();
        finished.assert_failure(2, sentence);
    }
}
