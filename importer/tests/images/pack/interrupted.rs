//! Jobs that are killed, and jobs that write to the same target at the same time.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use testkit::fail::OrFail;
use testkit::images::{Compression, Content};
use testkit::process::Running;
use testkit::random::Random;
use testkit::{disk, tools, wait};

use super::{MIB, files_below, image, import, into, pack, succeed};

/// Kills of a job that takes about this long.
const ROUNDS: u64 = 40;
const WINDOW: Duration = Duration::from_millis(300);

#[test]
#[ignore = "slow: waits 9 s"]
fn a_killed_job_leaves_nothing_that_looks_complete() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let source = folder.path().join("raw");
    fs::write(&source, disk::content(1, 6 * MIB)).or_fail("a disk");
    for round in 0..ROUNDS {
        let transport = if round % 2 == 0 { "oci" } else { "oci-archive" };
        let signal = if round / 2 % 2 == 0 { Signal::KILL } else { Signal::TERM };
        let place = tempfile::tempdir().or_fail("a folder");
        let target = place.path().join("target");
        let bytes = fs::read(&source).or_fail("the disk");
        let slowly = move |pipe: &mut dyn std::io::Write| {
            for piece in bytes.chunks(bytes.len() / 20) {
                pipe.write_all(piece)?;
                std::thread::sleep(WINDOW / 20);
            }
            Ok(())
        };
        let running = pack().arg("-").arg(into(transport, &target)).stdin(slowly).start();
        let moment =
            Random::new(round).below(u64::try_from(WINDOW.as_micros()).or_fail("a short window"));
        std::thread::sleep(Duration::from_micros(moment));
        running.signal(signal);
        let code = running.wait().code();
        let index = if transport == "oci" { target.join("index.json") } else { target.clone() };
        let case = format!("round {round}: {transport}, {signal:?}");
        assert_eq!(index.exists(), code == 0, "{case}: exit code {code}");
        if code != 0 && signal == Signal::TERM {
            assert_eq!(code, 143, "{case}");
            assert_eq!(fs::read_dir(place.path()).or_fail("the folder").count(), 0, "{case}");
        }
        if code != 0 {
            // The rest of the killed attempt is in nobody's way, and does not stay.
            succeed(pack().arg(&source).arg(into(transport, &target)), &case);
            let expected = if transport == "oci" { 5 } else { 1 };
            assert_eq!(files_below(place.path()).len(), expected, "{case}");
        }
    }
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_killed_job_leaves_no_scratch_file() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let scratch = folder.path().join("scratch");
    fs::create_dir(&scratch).or_fail("a folder");
    let image = image(folder.path(), Compression::Zlib, Content::RandomOrder);
    let mut bytes = tools::filter("gzip", ["-c"], &fs::read(&image.qcow2).or_fail("an image"));
    bytes.truncate(bytes.len() - 1);
    let slowly = move |pipe: &mut dyn std::io::Write| {
        pipe.write_all(&bytes)?;
        std::thread::sleep(Duration::from_secs(60));
        Ok(())
    };
    let target = into("oci", &folder.path().join("layout"));
    let running = pack().arg("--scratch").arg(&scratch).arg("-").arg(target).stdin(slowly).start();
    let descriptors = format!("/proc/{}/fd", running.id());
    let is_open = || {
        let mut entries = fs::read_dir(&descriptors).or_fail(&descriptors).flatten();
        entries
            .any(|entry| fs::read_link(entry.path()).is_ok_and(|file| file.starts_with(&scratch)))
    };
    wait::until(|| "no scratch file is open", is_open);
    running.signal(Signal::KILL);
    assert_eq!(running.wait().code(), 137);
    assert!(files_below(&scratch).is_empty());
}

#[test]
fn of_two_jobs_with_the_same_target_the_result_is_one_whole_layout() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let disks = [1, 2].map(|seed| (folder.path().join(seed.to_string()), disk::content(seed, MIB)));
    for (path, content) in &disks {
        fs::write(path, content).or_fail("a disk");
    }
    for round in 0..16 {
        let transport = if round % 2 == 0 { "oci" } else { "oci-archive" };
        let options = if round / 2 % 2 == 0 { &[][..] } else { &["--force"] };
        let case = format!("round {round}: {transport} {options:?}");
        let place = tempfile::tempdir().or_fail("a folder");
        let target = into(transport, &place.path().join("target"));
        let jobs = disks
            .each_ref()
            .map(|(path, _)| pack().args(options.iter().copied()).arg(path).arg(&target).start());
        let mut written = Vec::new();
        for (finished, (_, content)) in jobs.map(Running::wait).iter().zip(&disks) {
            if finished.code() == 0 {
                written.push(content);
            } else {
                let is_there = finished.stderr.contains("file exists");
                finished.assert_failure(7, if is_there { "--force" } else { "is writing to it" });
            }
        }
        // With `--force`, one may replace what the other has completed.
        assert!((1..=1 + options.len()).contains(&written.len()), "{case}");
        assert!(written.contains(&&import(&target, &[])), "{case}");
        let expected = if transport == "oci" { 5 } else { 1 };
        assert_eq!(files_below(place.path()).len(), expected, "{case}");
    }
}
