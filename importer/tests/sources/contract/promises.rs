//! The parts of the contract that every source fulfils.

use std::path::Path;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::gateway::Fault;
use testkit::loopdev::LoopDevice;
use testkit::process::{Finished, Program};

use crate::contract::images::{DISK_BYTES, Image, Images};
use crate::contract::servers::Server;
use crate::place::{MIB, Place, SOURCE_FAILED, UNTRUSTED};

/// Size of an object whose content no compression in transit makes smaller.
const OBJECT_BYTES: u64 = 16 * MIB;

fn import_of<S: Server>(place: &Place, server: &S, source: Vec<String>, target: &Path) -> Program {
    Program::new(crate::BINARY)
        .arg("import")
        .args(source)
        .arg(target)
        .args(server.options(place))
        .envs(&server.environment())
}

fn import<S: Server>(place: &Place, server: &S) -> Program {
    import_of(place, server, server.source(), &place.target())
}

/// Imports `object` with these options. Asserts that it arrives.
#[track_caller]
fn fetch<S: Server>(server: &S, object: &[u8], options: &[&str], case: &str) -> Finished {
    let place = Place::new();
    let program = import(&place, server).args(options);
    place.assert_imports(program, object, &format!("{}: {case}", S::NAME))
}

/// Raw and qcow2, compressed in several ways, give the same disk in files and on used devices. If
/// the server states that its object is raw, they are what a guest wrote, and the disk has their
/// bytes.
pub(crate) fn images<S: Server>() {
    let mut images = Images::build();
    if S::STATES_RAW {
        // What CDI's test of ImageIO without extents serves (`datavolume_test.go` 953).
        images.forms.push(Image { name: "text", bytes: b"U".repeat(20_480) });
        for form in &mut images.forms {
            form.bytes.resize(form.bytes.len().next_multiple_of(512), 0);
        }
    }
    for form in &images.forms {
        let case = format!("{}: {}", S::NAME, form.name);
        let expected = if S::STATES_RAW { &form.bytes } else { &images.disk };
        let server = S::start(&form.bytes, Vec::new());
        let finished = fetch(&server, expected, &["-v"], form.name);
        let is_ranged = finished.stderr.contains("the image is qcow2 route=ranged");
        assert_eq!(
            is_ranged,
            S::RANGED && !S::STATES_RAW && form.name == "qcow2 zlib",
            "{case}: {}",
            finished.stdout
        );

        let place = Place::new();
        let device = LoopDevice::new(&place.path(""), DISK_BYTES, 512);
        std::fs::write(device.path(), vec![0xAA; usize::try_from(DISK_BYTES).unwrap()])
            .or_fail(&case);
        let program = import_of(&place, &server, server.source(), device.path());
        program.run().assert_success(&case);
        assert!(
            std::fs::read(device.path()).or_fail(&case).starts_with(expected),
            "{case}: the device differs"
        );
    }
}

/// After a cut near the beginning, in the middle or near the end, little is sent again.
pub(crate) fn cuts<S: Server>() {
    let object = disk::content(5, OBJECT_BYTES);
    for percent in [10, 50, 90] {
        resume::<S>(&object, &[Fault::Cut(OBJECT_BYTES * percent / 100)]);
    }
}

/// The smallest import that shows that a source works: one cut, and progress that is right.
pub(crate) fn one_cut<S: Server>() {
    let object = disk::content(6, 2 * MIB);
    let finished = resume::<S>(&object, &[Fault::Cut(MIB)]);
    let done = event(&finished, "done");
    assert_eq!((&done["retries"], &done["source_bytes"]), (&1.into(), &(2 * MIB).into()), "{done}");
}

/// Imports over connections that break. Asserts that little is sent again.
fn resume<S: Server>(object: &[u8], faults: &[Fault]) -> Finished {
    let server = S::start(object, faults.to_vec());
    let case = format!("{faults:?}");
    let finished = fetch(&server, object, &["--progress", "json"], &case);
    let (sent, needed) = (server.sent_bytes(), object.len() as u64);
    let most = needed * 101 / 100 + S::UNIT_BYTES;
    assert!(sent <= most, "{}, {case}: {sent} bytes were sent for {needed}", S::NAME);
    finished
}

/// An object that the server does not have is an error.
pub(crate) fn missing<S: Server>() {
    let place = Place::new();
    let server = S::start(&disk::content(1, MIB), Vec::new());
    let (source, text) = server.missing();
    let program = import_of(&place, &server, source, &place.target());
    place.assert_refused(program, SOURCE_FAILED, text);
}

/// Progress shows the total, and the end that all of it came.
pub(crate) fn progress<S: Server>() {
    let object = disk::content(3, 4 * MIB);
    let server = S::start(&object, Vec::new());
    let slow = ["--progress", "json", "--limit-rate", "2M"];
    let finished = fetch(&server, &object, &slow, "progress");
    let total = object.len() as u64;
    let seen = event(&finished, "progress");
    let percent = seen["percent"].as_f64().unwrap_or_default();
    assert!(percent > 0.0 && percent < 100.0, "{}: {seen}", S::NAME);
    assert_eq!(seen["source_total"], total, "{}", S::NAME);
    assert_eq!(event(&finished, "done")["source_bytes"], total, "{}", S::NAME);
}

/// The first event of a kind that `--progress json` wrote, after any without a byte.
fn event(finished: &Finished, kind: &str) -> serde_json::Value {
    let lines = finished.stdout.lines().map(|line| {
        let event: serde_json::Value = serde_json::from_str(line).or_fail(line);
        event
    });
    let mut events = lines.filter(|event| event["event"] == kind && event["source_bytes"] != 0);
    events.next().or_fail(&finished.stdout)
}

/// Segments that arrive out of order are put together in order.
pub(crate) fn connections<S: Server>() {
    let object = disk::content(9, OBJECT_BYTES);
    let server = S::start(&object, vec![Fault::None, Fault::Cut(MIB), Fault::Cut(2 * MIB)]);
    let options = ["--connections", "4", "--progress", "json", "--limit-rate", "12M"];
    let finished = fetch(&server, &object, &options, "four connections");
    assert_eq!(event(&finished, "progress")["connections"]["open"], 4, "{}", finished.stdout);
}

/// A server may be overloaded for a while, before the object and in its middle.
pub(crate) fn overload<S: Server>() {
    let object = disk::content(7, 4 * MIB);
    let later = |status| Fault::Status(status, vec![("retry-after", "1".to_owned())]);
    let faults = vec![
        later(429),
        Fault::Cut(MIB),
        Fault::Status(503, Vec::new()),
        Fault::Status(502, Vec::new()),
        later(429),
    ];
    fetch(&S::start(&object, faults), &object, &[], "overload");
}

/// A bit of the object that is flipped in transit is found.
pub(crate) fn corruption<S: Server>() {
    let object = disk::content(8, 4 * MIB);
    let place = Place::new();
    let server = S::start(&object, vec![Fault::Corrupt(3 * MIB)]);
    let import = import(&place, &server);
    match S::CORRUPTION {
        Some(text) => place.assert_refused(import, SOURCE_FAILED, text),
        // Only a checksum from the user can reveal the flipped bit.
        None => {
            let sum = testkit::tools::filter("sha256sum", ["-"], &object);
            let sum = String::from_utf8_lossy(&sum).split(' ').next().unwrap().to_owned();
            let import = import.args(["--checksum", &format!("sha256:{sum}")]);
            place.assert_refused(import, UNTRUSTED, "checksum mismatch")
        }
    };
}

/// A wrong password is reported without being shown.
pub(crate) fn strangers<S: Server>() {
    let object = disk::content(1, MIB);
    let server = S::start_guarded(&object);
    fetch(&server, &object, &[], "a password");
    let (password, text) = server.lock_out();
    let place = Place::new();
    let finished = place.assert_refused(import(&place, &server), SOURCE_FAILED, text);
    assert!(!finished.stderr.contains(password), "{}: {}", S::NAME, finished.stderr);
}
