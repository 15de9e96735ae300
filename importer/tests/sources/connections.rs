//! Imports over a number of connections that adapts: what is written, counted and shown.

use std::path::Path;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::origin::{Fault, Origin, Ranges, Script};
use testkit::process::Program;
use testkit::tools;

/// Rate of each connection in bytes per second.
const RATE: u64 = 8 << 20;

const OBJECT_BYTES: u64 = 80 << 20;

fn import(origin: &Origin, folder: &Path) -> Program {
    let source = origin.url("/disk");
    Program::new(crate::BINARY).args(["import", "--force", &source]).arg(folder.join("disk.img"))
}

/// Imports the object of `script`, over a number of connections that adapts if there are no
/// options. Asserts that it arrives, and returns the events.
fn events_of(script: Script, options: &[&str]) -> Vec<serde_json::Value> {
    let object = script.object.body.clone();
    let folder = tempfile::tempdir().or_fail("a folder");
    let origin = Origin::start(script).or_fail("a server");
    let program = import(&origin, folder.path()).args(["--progress", "json", "-v"]).args(options);
    let finished = if options.is_empty() { program.adaptive() } else { program }.run();
    finished.assert_success("import");
    assert!(std::fs::read(folder.path().join("disk.img")).or_fail("the disk") == object);
    finished.stdout.lines().map(|line| serde_json::from_str(line).or_fail(line)).collect()
}

/// The numbers of connections in `events`, in order.
fn open_connections(events: &[serde_json::Value]) -> Vec<u64> {
    events.iter().filter_map(|event| event["connections"]["open"].as_u64()).collect()
}

fn slow() -> Script {
    Script { rate: Some(RATE), ..Script::new(disk::content(5, OBJECT_BYTES)) }
}

#[test]
#[ignore = "alone: the number of connections depends on their measured rates"]
fn a_server_that_limits_each_connection_is_read_over_many() {
    let events = events_of(slow(), &[]);
    assert!(open_connections(&events).into_iter().max() >= Some(8), "{events:?}");
    let seconds = events.last().and_then(|event| event["seconds"].as_f64());
    assert!(seconds.is_some_and(|seconds| seconds < 5.0), "one takes 10 s: {seconds:?}");
}

#[test]
#[ignore = "slow: 2 s of CPU time"]
fn a_fixed_number_of_connections_stays() {
    for (count, rate) in [(1, Some(40 << 20)), (16, Some(40 << 20)), (16, None)] {
        let script = Script { rate, ..slow() };
        let events = events_of(script, &["--connections", &count.to_string()]);
        assert!(open_connections(&events).into_iter().all(|open| open == count), "{events:?}");
    }
}

#[test]
#[ignore = "alone: the number of connections depends on their measured rates"]
fn awkward_servers_are_read_over_few() {
    let busy = vec![Fault::Status(429, Some("30".to_owned())); 9];
    for (script, most) in [
        (Script { shared_rate: true, ..slow() }, 1),
        (Script { ranges: Ranges::Claimed, ..slow() }, 1),
        (Script { faults: [vec![Fault::None], busy].concat(), ..slow() }, 1),
    ] {
        let events = events_of(script, &[]);
        let open = open_connections(&events);
        assert!(open.last().is_some_and(|last| *last <= most), "{events:?}");
        let seconds = events.last().and_then(|event| event["seconds"].as_f64());
        assert!(seconds.is_some_and(|seconds| seconds < 12.0), "one takes 10 s: {seconds:?}");
    }
}

#[test]
#[ignore = "slow: waits 10 s"]
fn images_are_the_same_over_several_connections() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    let mut disk = disk::content(5, OBJECT_BYTES / 2);
    disk.resize(disk.len() * 3, 0);
    disk.extend(disk::content(6, OBJECT_BYTES / 4));
    std::fs::write(path("raw"), &disk).or_fail("the disk");
    tools::run(
        "qemu-img",
        [
            "convert".as_ref(),
            "-Oqcow2".as_ref(),
            path("raw").as_os_str(),
            path("qcow2").as_os_str(),
        ],
    );
    let qcow2 = std::fs::read(path("qcow2")).or_fail("the image");
    let compressed = tools::filter("gzip", ["-c", "-1"], &qcow2);
    for object in [qcow2, compressed] {
        let origin = Origin::start(Script { rate: Some(RATE), ..Script::new(object) });
        let origin = origin.or_fail("a server");
        let program = import(&origin, folder.path()).args(["--connections", "4"]);
        program.run().assert_success("import");
        assert!(std::fs::read(path("disk.img")).or_fail("the disk") == disk);
        assert!(origin.requests().len() > 5, "only {} requests", origin.requests().len());
    }
}
