//! Servers that fail during an import: it resumes, or ends with an error and leaves no target.

use std::path::Path;

use testkit::cases::{Named, check_all};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Image, Spec};
use testkit::origin::{Fault, Object, Origin, Script};
use testkit::process::Program;
use testkit::random::Random;

/// Large enough that one percent is more than a few writes of the server.
const DISK_BYTES: u64 = 48 << 20;

/// How often in a row each transfer is cut.
const CUTS: u64 = 10;

/// Bytes by which each connection gets further than the one before.
const STEP_BYTES: u64 = 8 << 10;

fn importer(url: &str, target: &Path) -> Program {
    let program = Program::new(crate::BINARY).args(["import", url]);
    program.arg(target)
}

fn start(script: Script) -> Origin {
    Origin::start(script).or_fail("start a server on loopback")
}

/// Two objects of the same disk: a raw one, and a qcow2 image, which is read by its own map.
fn objects(folder: &Path) -> [Image; 2] {
    let spec = Spec { virtual_size: DISK_BYTES, ..Spec::new(Content::Dense) };
    let image = Spec { compression: Compression::Zstd, ..spec }.build(folder, "image");
    let raw = Image { qcow2: image.raw.clone(), name: "raw".into(), ..image.clone() };
    [raw, image]
}

#[test]
#[ignore = "slow: waits 10 s"]
fn ten_cuts_in_a_row_cost_less_than_one_percent_of_the_object() {
    let folder = tempfile::tempdir().unwrap();
    let mut cases = Vec::new();
    for object in objects(folder.path()) {
        for percent in [10, 50, 90] {
            cases.push(Named(
                format!("{} cut at {percent} %", object.name),
                (object.clone(), percent),
            ));
        }
    }
    check_all(cases, |Named(_, (object, percent))| {
        let body = std::fs::read(&object.qcow2).or_fail("read the object");
        let length = body.len() as u64;
        let first = length * percent / 100;
        let faults = (0..CUTS).map(|n| Fault::CutAt(first + n * STEP_BYTES)).collect();
        let origin = start(Script { faults, ..Script::new(body) });
        let folder = tempfile::tempdir().or_fail("a folder");
        let target = folder.path().join("disk.img");
        importer(&origin.url("/object"), &target).run().assert_success("cut");
        disk::assert_same(&target, &object.raw, DISK_BYTES, "cut");
        let sent = origin.body_bytes();
        assert!(sent <= length + length / 100, "{sent} bytes sent for an object of {length}");
    });
}

#[test]
#[ignore = "slow: waits 11 s"]
fn twenty_random_cuts_without_a_validator_cost_little_and_never_a_wrong_disk() {
    const BYTES: u64 = 256 << 20;
    let content = disk::content(3, BYTES);
    let mut random = Random::new(20);
    let mut cuts: Vec<u64> = (0..20).map(|_| random.below(BYTES)).collect();
    cuts.sort_unstable();
    let origin = start(Script {
        object: Object::new(content.clone(), None),
        faults: cuts.iter().copied().map(Fault::CutAt).collect(),
        spares_bounded: true,
        ..Script::new("")
    });
    let folder = tempfile::tempdir().or_fail("a folder");
    let target = folder.path().join("disk.img");
    let finished = importer(&origin.url("/object"), &target).run();
    finished.assert_success("twenty cuts");
    assert!(std::fs::read(&target).or_fail("the disk") == content, "the disk differs");

    // A range without a last byte asks for the rest.
    let requests = origin.requests();
    let ranges = requests.iter().filter_map(|recorded| recorded.request.range(u64::MAX));
    let (rests, blocks): (Vec<_>, Vec<_>) = ranges.partition(|range| range.end == u64::MAX);
    let blocks: u64 = blocks.iter().map(|range| range.end - range.start).sum();
    assert_eq!(rests.len(), cuts.len());
    let tails: u64 = rests.iter().zip(&cuts).map(|(rest, cut)| cut - rest.start).sum();
    let compared = blocks + tails;
    assert!(blocks > 0 && tails > 0 && compared < 8 << 20, "{blocks} and {tails} bytes compared");
    let sent = origin.body_bytes();
    assert!(sent - compared <= BYTES + BYTES / 100, "{sent} bytes sent, {compared} compared");
}

#[test]
#[ignore = "slow: waits 7 s"]
fn resets_stalls_and_busy_servers_are_overcome() {
    let folder = tempfile::tempdir().unwrap();
    let [raw, _] = objects(folder.path());
    let body = std::fs::read(&raw.qcow2).unwrap();
    let half = DISK_BYTES / 2;
    let faults = vec![
        Fault::Refuse,
        Fault::Status(503, None),
        Fault::ResetAt(half),
        Fault::StallAt(half + (1 << 20)),
        Fault::Status(500, None),
        Fault::ResetAt(DISK_BYTES - 1),
    ];
    let origin = start(Script { faults, ..Script::new(body) });
    let target = folder.path().join("disk.img");
    let program = importer(&origin.url("/object"), &target).args(["--no-progress-timeout", "4"]);
    program.run().assert_success("six faults");
    disk::assert_same(&target, &raw.raw, DISK_BYTES, "six faults");
}

#[test]
#[ignore = "slow: waits 15 s"]
fn retry_limits_apply_to_the_first_connection_too() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let target = folder.path().join("disk.img");
    let run = |options: &[&str]| {
        let faults = vec![Fault::Status(503, None); 3];
        let origin = start(Script { faults, ..Script::new(disk::content(1, 2 << 20)) });
        importer(&origin.url("/object"), &target).args(options.iter().copied()).run()
    };
    run(&["--retries", "2"]).assert_failure(3, "503");
    run(&["--retries", "3"]).assert_success("a third retry");
    let target = folder.path().join("other.img");
    let refused =
        importer("http://127.0.0.1:1/object", &target).args(["--no-progress-timeout", "5"]).run();
    refused.assert_failure(3, "connect");
    assert!(refused.wall.as_secs() >= 5, "{:?}", refused.wall);
}
