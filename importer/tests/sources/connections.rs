//! Imports over a number of connections that adapts: what is written, counted and shown.

use testkit::disk;
use testkit::fail::OrFail;
use testkit::origin::{Origin, Script};
use testkit::tools;

use crate::place::{MIB, Place};

/// Rate of each connection in bytes per second.
const RATE: u64 = 8 << 20;

const OBJECT_BYTES: u64 = 80 << 20;

#[test]
#[ignore = "alone: the number of connections depends on their measured rates"]
fn a_server_that_limits_each_connection_is_read_over_many() {
    let (place, object) = (Place::new(), disk::content(5, OBJECT_BYTES));
    let script = Script { rate: Some(RATE), ..Script::new(object.clone()) };
    let origin = Origin::start(script).or_fail("a server");
    let program = place.import(&origin.url("/disk")).args(["--progress", "json"]).adaptive();
    let finished = place.assert_imports(program, &object, "import");
    let events = finished.stdout.lines().map(|line| {
        let event: serde_json::Value = serde_json::from_str(line).or_fail(line);
        event
    });
    let events: Vec<_> = events.collect();
    let most = events.iter().filter_map(|event| event["connections"]["open"].as_u64()).max();
    assert!(most >= Some(4), "{most:?}");
    let seconds = events.last().and_then(|event| event["seconds"].as_f64());
    let seconds = seconds.or_fail("the time of an import");
    assert!(seconds < 5.0, "one takes 10 s: {seconds}");
}

#[test]
#[ignore = "slow: 2 s of CPU time"]
fn images_are_the_same_over_several_connections() {
    let place = Place::new();
    let mut disk = disk::content(5, 20 * MIB);
    disk.resize(disk.len() * 3, 0);
    disk.extend(disk::content(6, 10 * MIB));
    let raw = place.write("raw", &disk);
    let image = place.write("image", "");
    tools::run("qemu-img", ["convert", "-Oqcow2", &raw, &image]);
    let qcow2 = std::fs::read(&image).or_fail("the image");
    let compressed = tools::filter("gzip", ["-c", "-1"], &qcow2);
    for object in [qcow2, compressed] {
        let origin = Origin::start(Script::new(object)).or_fail("a server");
        let program = place.import(&origin.url("/disk")).args(["--connections", "4"]);
        place.assert_imports(program, &disk, "import");
        assert!(origin.requests().len() > 4, "only {} requests", origin.requests().len());
    }
}
