//! Hosts that are not the right one, refuse, or do not keep to the protocol.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::Program;
use testkit::vsphere::host::{FrameMaker, frame};
use testkit::vsphere::tracked::{DISK, UUID};

use super::{HabitChange, PASSWORD, Scene, content, no_permission, refused, used_bytes};
use crate::place::{MIB, SOURCE_FAILED};

#[test]
fn hosts_that_are_not_the_right_one_get_no_data_from_us() {
    let scene = Scene::new(&content());
    let other = "AA:".repeat(19) + "AA";
    let second = scene.authority.server_config().or_fail("TLS");
    let cases: [(&str, HabitChange<'_>); 5] = [
        ("the first TLS session: ", &|habits| habits.thumbprint = Some(other.clone())),
        ("the host announces another certificate than it has", &|habits| {
            habits.announced = Some("AB:".repeat(31) + "AB");
        }),
        (
            "the second TLS session: unexpected error: the server's certificate does not have the thumbprint sha256:",
            &|habits| {
                habits.second = Some(Arc::clone(&second));
            },
        ),
        ("the host is older than ESXi 7.0.3", &|habits| habits.has_sha256 = false),
        ("8388608 bytes according to vSphere and 8389120 according to the ESXi host", &|habits| {
            habits.grown = 512;
        }),
    ];
    let mut usual = None;
    for (sentence, change) in cases {
        scene.host.habits(|habits| {
            let usual = usual.get_or_insert_with(|| habits.clone());
            *habits = usual.clone();
            change(habits);
        });
        // Without an option, failures that may pass would be retried for a minute.
        scene.assert_refused(&[], sentence);
    }
    // The same without verification of vSphere, for a host of which it names no thumbprint.
    scene.host.habits(|habits| {
        *habits = usual.unwrap_or_else(|| habits.clone());
        habits.thumbprint = Some(String::new());
    });
    let address = format!("vmware+{}/?vm={UUID}&disk={DISK}", scene.vsphere.url());
    let program = Program::new(crate::BINARY)
        .args(["import", &address, "--insecure", "--transport", "nfc"])
        .args(scene.place.as_user("user", PASSWORD))
        .arg(scene.place.target());
    scene.place.assert_refused(program, SOURCE_FAILED, "vSphere does not name its certificate");
    // Neither this one nor a host with the wrong thumbprint nor one that is too old was given a
    // ticket.
    assert_eq!(scene.host.secrets().len(), 3);
    assert_eq!(scene.host.served().1, 0);
}

#[test]
fn whatever_is_closed_or_not_allowed_is_named() {
    let scene = Scene::new(&content());
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
    let closed = closed.or_fail("a port").port();
    scene.vsphere.use_host(&scene.host, closed);
    let sentence = format!(
        "127.0.0.1: ESXi host 127.0.0.1, port {closed}: cannot connect to it: connection refused; this machine needs TCP to port {closed}"
    );
    scene.assert_refused(&["--retries", "0"], &sentence);
    scene.vsphere.use_host(&scene.host, scene.host.port());
    scene.host.habits(|habits| habits.refused_tickets = 1);
    let refused = "the host refuses the ticket: \"530 Please login with USER and PASS.\"";
    scene.assert_refused(&["--retries", "0"], refused);
    let program = scene.program("import", None, None).arg(scene.place.target());
    scene.host.add_disk(DISK, &PathBuf::from("/nowhere"));
    scene.vsphere.habits(|habits| habits.instead = vec![("NfcGetVmFiles", no_permission())]);
    let privilege = "VirtualMachine.Provisioning.GetVmFiles";
    scene.place.assert_refused(program, SOURCE_FAILED, privilege);
}

#[test]
fn errors_of_the_host_end_an_import_unless_they_only_hide_holes() {
    let content = content();
    let scene = Scene::new(&content);
    scene.host.habits(|habits| {
        habits.instead = Some((13, |operation| refused(13, operation, 48)));
    });
    let unknown = ("QueryChangedDiskAreas", no_permission());
    for (is_tracking, instead, expected, words) in [
        (true, vec![], used_bytes(&content), "vSphere lists "),
        (true, vec![unknown], 8 * MIB, "vSphere does not list the used areas: "),
        (false, vec![], 8 * MIB, "vSphere does not list the used areas: changes are not tracked"),
    ] {
        scene.vsphere.habits(|habits| {
            habits.is_tracking = is_tracking;
            habits.instead = instead;
        });
        let before = scene.host.served().1;
        let finished = scene.place.assert_imports(scene.import().arg("-v"), &content, words);
        assert!(finished.stderr.contains(words), "{}", finished.stderr);
        scene.assert_discreet(&finished.stderr);
        assert_eq!(scene.host.served().1 - before, expected, "{words}");
    }
    let queries = scene.vsphere.take_queries();
    assert!(queries.iter().all(|query| query.change_id == "*"), "{queries:?}");
    scene.host.habits(|habits| {
        habits.instead = Some((7, |operation| refused(7, operation, 44)));
    });
    let sentence = "at offset 0 with error 5: not here (127.0.0.1: ESXi host 127.0.0.1, port ";
    scene.assert_refused(&["--retries", "0"], sentence);
}

/// The payload of a fragment of the first read, whose numbers from 24 on are these.
fn fragment(operation: u32, numbers: [u32; 4], data: &[u8]) -> Vec<u8> {
    let mut payload = vec![0; 24];
    payload.extend(numbers.map(u32::to_le_bytes).concat());
    payload.extend([0; 4]);
    frame(7, operation, &payload, data)
}

#[test]
fn hostile_lengths_end_the_import() {
    let scene = Scene::new(&disk::content(9, 8 * MIB));
    const READ: u32 = 1 << 20;
    let cases: [(u32, FrameMaker, &str); 9] = [
        (4, |operation| frame(4, operation, &[0; 59], &[]), "a payload of 59 bytes, expected 60"),
        (4, |operation| frame(4, operation + 1, &[0; 60], &[]), "a reply to operation 4"),
        (4, |_| vec![7; 100], "a frame begins with 0x07070707"),
        (
            4,
            |operation| frame(1, operation, &[255; 16], &[]),
            "an error with a text of 4294967295 bytes",
        ),
        (
            13,
            |operation| frame(13, operation, &[255; 48], &[]),
            "it describes 18446744073709551615 chunks",
        ),
        (
            7,
            |operation| fragment(operation, [READ, 0, READ + 1, READ + 1], &[]),
            "answers a read of bytes 0 to",
        ),
        (
            7,
            |operation| fragment(operation, [READ, u32::MAX, 512, 512], &[]),
            "answers a read of bytes 0 to",
        ),
        (
            7,
            |operation| {
                let one = fragment(operation, [READ, 0, 512, 512], &[0; 512]);
                [one.clone(), one].concat()
            },
            "arrive twice",
        ),
        (7, |operation| fragment(operation + 99, [READ, 0, 512, 512], &[]), "which is not open"),
    ];
    for (kind, instead, sentence) in cases {
        scene.host.habits(|habits| habits.instead = Some((kind, instead)));
        scene.assert_refused(&[], sentence);
    }
}
