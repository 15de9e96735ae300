//! Uploads and clones while system calls fail: then the server serves again, or has ended.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::https::Request;
use testkit::process::{Finished, Program};
use testkit::upload_pod::{Server, UploadPod};
use testkit::upload_proxy::beside;
use testkit::wait;

use crate::sweep::disks::assert_hidden;
use crate::sweep::trees::{self, Trees};
use crate::sweep::victim::{IMPORTER, Victim, sweep};

/// Part of the error of a server that completed the disk but could not report that.
const COMPLETE: &str = "the disk is complete, but cannot write the termination message";

const UPLOAD: &str = "/v1beta1/upload";

/// Most calls of a kind that fail in turn. Fewer than for the importer: a run takes some 200 ms,
/// and the code that writes the disk is the same.
const MOST: u64 = 9;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

const DISK_BYTES: u64 = 3 << 20;

fn pod() -> UploadPod {
    UploadPod::new(&beside(IMPORTER, "cdi-uploadserver"))
}

/// The result of an upload as its client sees it.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Done,
    Refused(String),
    Lost(String),
}

fn upload(server: &Server, path: &str, body: &[u8]) -> Answer {
    let request = Request::post(path);
    let answer = server.try_connect().and_then(|mut connection| {
        connection.set_patience(PATIENCE)?;
        connection.exchange(&request, body)
    });
    match answer {
        Ok(answer) if answer.status == 200 => Answer::Done,
        Ok(answer) => Answer::Refused(format!("{}: {}", answer.status, answer.text())),
        Err(error) => Answer::Lost(error.to_string()),
    }
}

/// Waits until the server has ended or waits for an upload; true if it has ended. A server that
/// can do neither, because a call fails for ever, is killed here.
fn has_ended(server: &Server, victim: &Victim<'_>) -> bool {
    let status = |server: &Server| -> std::io::Result<String> {
        let mut connection = server.try_connect()?;
        connection.set_patience(PATIENCE)?;
        Ok(connection.exchange(&Request::new("GET", "/v1beta1/status"), &[])?.text())
    };
    let is_idle = || status(server).is_ok_and(|status| status.contains("\"state\":\"idle\""));
    let began = Instant::now();
    loop {
        if server.has_ended() {
            return true;
        }
        if is_idle() {
            return false;
        }
        if victim.is_for_ever() && began.elapsed() > Duration::from_secs(1) {
            server.signal(Signal::KILL);
            return false;
        }
        assert!(began.elapsed() < PATIENCE, "neither idle nor at its end: {}", server.log());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Uploads to a server that fails; `check` looks at the volume, given the success and stderr.
fn upload_to(
    victim: &Victim<'_>,
    pod: &UploadPod,
    path: &str,
    body: &[u8],
    check: &dyn Fn(bool, &str),
) {
    let server = match pod.try_serve(victim.program(pod.program())) {
        Ok(server) => server,
        Err(ended) => {
            assert!(!victim.has_succeeded(&ended), "it ended before it listened");
            return check(false, &ended.stderr);
        }
    };
    let first = upload(&server, path, body);
    if first == Answer::Done || has_ended(&server, victim) {
        let ended = server.wait();
        let is_done = victim.has_succeeded(&ended)
            || first == Answer::Done
            || ended.stderr.contains(COMPLETE);
        return check(is_done, &ended.stderr);
    }
    // The log may not have come as far as the answer, which has the same sentence.
    check(false, &format!("{first:?} {}", server.log()));
    if victim.is_for_ever() {
        return;
    }
    let again = || upload(&server, path, body);
    let complaint =
        || format!("after {first:?} it does not serve again: {:?} {}", again(), server.log());
    wait::until(complaint, || again() == Answer::Done || server.has_ended());
    let ended = server.wait();
    check(victim.has_succeeded(&ended), &ended.stderr);
}

#[test]
#[ignore = "slow: waits 20 s"]
fn an_uploaded_disk_is_complete_or_hidden_whatever_fails() {
    let content = disk::sparse_content(5, DISK_BYTES, 2);
    let folder = tempfile::tempdir().or_fail("a folder");
    let expected = folder.path().join("disk");
    std::fs::write(&expected, &content).or_fail("a disk");
    sweep("upload to file", MOST, |victim| {
        let pod = pod();
        upload_to(victim, &pod, UPLOAD, &content, &|is_done, said| match is_done {
            true => disk::assert_same(&pod.disk(), &expected, DISK_BYTES, said),
            false => assert_hidden(&pod.disk(), said),
        });
    });
}

#[test]
#[ignore = "slow: waits 19 s"]
fn an_uploaded_archive_is_complete_undone_or_reported_as_partial_whatever_fails() {
    let trees = Trees::new();
    let archive = std::fs::read(trees.archive()).or_fail("an archive");
    sweep("upload of an archive", MOST, |victim| {
        let pod = pod();
        let data = pod.path("data");
        trees.put_old(&data);
        upload_to(victim, &pod, "/v1beta1/upload-archive", &archive, &|is_done, said| {
            trees::check(&trees, &data, is_done, said);
        });
    });
}

fn cloner(pod: &UploadPod, server: &Server, source: &Path) -> Program {
    let program = Program::new(beside(IMPORTER, "cdi-cloner")).arg("clone").arg(source);
    let files = [("--cacert", "ca.crt"), ("--cert", "client.crt"), ("--key", "client.key")];
    files.into_iter().fold(program.arg(server.url(UPLOAD)), |program, (option, file)| {
        program.arg(option).arg(pod.tls(file))
    })
}

/// The system calls of the cloner fail; the server works, and must accept the next clone.
#[test]
#[ignore = "slow: 12 s of CPU time"]
fn a_clone_is_complete_or_can_be_repeated_whatever_fails() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let source = folder.path().join("disk");
    std::fs::write(&source, disk::sparse_content(6, DISK_BYTES, 2)).or_fail("a disk");
    sweep("clone", MOST, |victim| {
        let pod = pod();
        let server = pod.start();
        let finished = victim.program(cloner(&pod, &server, &source)).run();
        let assert_same = |ended: Finished| {
            ended.assert_success("the server");
            disk::assert_same(&pod.disk(), &source, DISK_BYTES, &finished.stderr);
        };
        if victim.has_succeeded(&finished) || has_ended(&server, victim) {
            return assert_same(server.wait());
        }
        assert_hidden(&pod.disk(), &finished.stderr);
        cloner(&pod, &server, &source).run().assert_success("the next clone");
        assert_same(server.wait());
    });
}
