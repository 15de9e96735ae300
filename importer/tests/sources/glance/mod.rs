//! Images of OpenStack: the whole program against a scripted cloud. The tests that all sources
//! share are in `tests/sources/contract`.

mod access;
mod faults;
mod hostile;
mod trust;

use testkit::images::qcow2::{Guest, Qcow2};
use testkit::openstack::script::{CREDENTIAL, Cloud, OWN_TOKEN, PASSWORD, Script, USER};
use testkit::process::Program;

use crate::place::{MIB, Place, SOURCE_FAILED, assert_harmless};

/// The usual credentials: a user in a domain, and a project.
const ACCESS: [(&str, &str); 4] = [
    ("OS_USERNAME", USER),
    ("OS_PASSWORD", PASSWORD),
    ("OS_PROJECT_NAME", "disks"),
    ("OS_DEFAULT_DOMAIN", "default"),
];

const SECRETS: [&str; 4] = [PASSWORD, CREDENTIAL, OWN_TOKEN, "token-1"];

fn import(place: &Place, cloud: &Cloud) -> Program {
    place.import(&cloud.source()).envs(&ACCESS)
}

/// Asserts that the image is imported, and that no secret is shown.
#[track_caller]
fn assert_imports(place: &Place, program: Program, raw: &[u8]) {
    let finished = place.assert_imports(program, raw, "an image");
    for secret in SECRETS {
        assert!(!finished.stderr.contains(secret), "{}", finished.stderr);
    }
}

/// Asserts that the import fails with this sentence, and is harmless in what it says.
#[track_caller]
fn assert_refused(place: &Place, program: Program, sentence: &str) {
    assert_harmless(&place.assert_refused(program, SOURCE_FAILED, sentence), &SECRETS);
}

/// Like [`assert_refused`], for the usual import from a cloud.
#[track_caller]
fn assert_refuses(cloud: &Cloud, sentence: &str) {
    let place = Place::new();
    assert_refused(&place, import(&place, cloud), sentence);
}

/// A guest may have written an image into the first sectors of its own disk.
#[test]
fn an_image_that_glance_calls_raw_is_stored_as_it_is() {
    let disk = Qcow2::new(16, vec![Guest::Data(1), Guest::Hole]).build().image;
    let mut script = Script::new(disk.clone());
    script.image["disk_format"] = "raw".into();
    let (place, cloud) = (Place::new(), Cloud::start(script));
    assert_imports(&place, import(&place, &cloud), &disk);
}
