//! Imports of whole oVirt disks.

use std::sync::Arc;

use testkit::certs::Authority;
use testkit::disk;
use testkit::images::{Content, Spec};
use testkit::ovirt::{
    Contents, DISK_ID, DISK_IS_LOCKED, DISKS_ARE_LOCKED, Daemon, Engine, Extents, IMAGE_ID, Script,
};

use crate::imageio::{MIB, Place, assert_ended, raw_disk, read, sparse};

#[test]
fn a_disk_equals_the_engines_with_and_without_extents() {
    for extents in [Extents::Served, Extents::Unsupported] {
        let place = Place::new();
        let raw = sparse(1);
        let engine = Engine::start(Script { extents, ..raw_disk(raw.clone()) });
        place.import_equals(&engine, &raw);
        assert_ended(&engine, "finished_success");
        let transfers = engine.transfers();
        assert_eq!(
            transfers.iter().map(|t| (t.format.as_str(), t.subject.as_str())).collect::<Vec<_>>(),
            [("raw", "disk")]
        );
    }
}

/// A disk of 96 MiB, of which the first MiB, one in the middle and the last are data.
fn islands() -> Vec<u8> {
    let mut raw = vec![0; 96 << 20];
    for (seed, start) in [(1, 0), (2, 48 << 20), (3, 95 << 20)] {
        raw[start..start + (1 << 20)].copy_from_slice(&disk::content(seed, MIB));
    }
    raw
}

#[test]
#[ignore = "root: rights of root"]
fn holes_are_neither_transferred_nor_written() {
    let place = Place::new();
    let raw = islands();
    let engine = Engine::start(raw_disk(raw.clone()));
    let finished = place.import(&engine).run();
    finished.assert_success("islands");
    place.assert_disk(&raw);
    // The bytes that are in flight when an island ends are sent in addition.
    let sent = engine.body_bytes();
    assert!(sent < 16 * MIB, "{sent} bytes sent for 3 MiB of data");
    assert!(finished.written_bytes() < 4 * MIB, "{} bytes written", finished.written_bytes());
    assert!(disk::data_bytes(&place.target()) <= 3 * MIB);
}

#[test]
fn several_connections_make_the_same_disk() {
    for raw in [islands(), sparse(2)] {
        let place = Place::new();
        let engine = Engine::start(raw_disk(raw.clone()));
        place.import(&engine).args(["--connections", "4"]).run().assert_success("four connections");
        place.assert_disk(&raw);
        assert_ended(&engine, "finished_success");
    }
}

#[test]
fn empty_tiny_and_full_disks_are_imported() {
    for raw in [vec![0; 3 << 20], vec![7; 512], disk::content(4, 2 * MIB)] {
        let place = Place::new();
        let engine = Engine::start(raw_disk(raw.clone()));
        place.import_equals(&engine, &raw);
    }
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn an_image_in_a_raw_disk_is_converted_whatever_its_extents() {
    let place = Place::new();
    for content in [Content::Sparse, Content::RandomOrder] {
        let image = Spec { virtual_size: 40 * MIB, ..Spec::new(content) };
        let image = image.build(place.folder.path(), "image");
        // The disk continues behind the image.
        let mut raw = read(&image.qcow2);
        raw.resize(raw.len() + (30 << 20), 0);
        let engine = Engine::start(raw_disk(raw));
        place.import(&engine).arg("--force").run().assert_success("image in a disk");
        disk::assert_same(&place.target(), &image.raw, image.virtual_size, "image in a disk");
    }
}

#[test]
fn a_snapshot_is_imported_by_its_id_and_the_newest_one_as_the_disk() {
    let (now, then) = (sparse(5), sparse(6));
    let script = Script {
        snapshots: [(
            "older".to_owned(),
            Contents { raw: then.clone().into(), ..Contents::default() },
        )]
        .into(),
        ..raw_disk(now.clone())
    };
    for (checkpoint, raw, subject) in [("older", &then, "older"), (IMAGE_ID, &now, "disk")] {
        let place = Place::new();
        let engine = Engine::start(script.clone());
        place.import(&engine).args(["--checkpoint", checkpoint]).run().assert_success(checkpoint);
        place.assert_disk(raw);
        let transfer = engine.transfers().remove(0);
        assert_eq!((transfer.subject.as_str(), transfer.format.as_str()), (subject, "raw"));
        assert_ended(&engine, "finished_success");
    }
}

#[test]
#[ignore = "slow: waits 16 s"]
fn a_locked_disk_is_waited_for() {
    // Both cases run at once, because each pauses for 15 seconds.
    std::thread::scope(|scope| {
        for locked in [DISK_IS_LOCKED, DISKS_ARE_LOCKED] {
            scope.spawn(move || {
                let place = Place::new();
                let engine = Engine::start(Script { locked: vec![locked], ..raw_disk(sparse(7)) });
                place.import_equals(&engine, &sparse(7));
                assert_eq!(engine.count("POST /ovirt-engine/api/imagetransfers"), 2);
                assert_ended(&engine, "finished_success");
            });
        }
    });
}

#[test]
fn an_initializing_transfer_is_waited_for_and_requested_once() {
    let place = Place::new();
    let engine = Engine::start(Script { initializing: 3, ..raw_disk(sparse(8)) });
    place.import_equals(&engine, &sparse(8));
    assert_eq!(engine.count("POST /ovirt-engine/api/imagetransfers"), 1);
    assert_ended(&engine, "finished_success");
}

#[test]
fn an_engine_over_tls_is_trusted_only_by_its_authority() {
    let authority = Authority::new().unwrap();
    let raw = sparse(9);
    let engine = Engine::start_tls(raw_disk(raw.clone()), authority.server_config().unwrap());

    let place = Place::new();
    let certificates = place.path("certificates");
    std::fs::create_dir(&certificates).unwrap();
    std::fs::write(certificates.join("ca.pem"), authority.pem()).unwrap();
    place.assert_refused(place.import(&engine), "certificate");
    std::fs::write(certificates.join("ca.pem"), Authority::new().unwrap().pem()).unwrap();
    place.assert_refused(place.import(&engine).arg("--ca-dir").arg(&certificates), "certificate");
    assert!(engine.calls().is_empty(), "the password went to a stranger");

    std::fs::write(certificates.join("ca.pem"), authority.pem()).unwrap();
    place.import(&engine).arg("--ca-dir").arg(&certificates).run().assert_success("with its CA");
    place.assert_disk(&raw);
    place.import(&engine).args(["--insecure", "--force"]).run().assert_success("insecure");
    assert_ended(&engine, "finished_success");
}

#[test]
#[ignore = "server: ovirt-imageio"]
fn the_real_image_server_serves_the_same_disk() {
    let authority = Authority::new().unwrap();
    for tls in [None, Some(&authority)] {
        let daemon = Arc::new(Daemon::start(tls));
        for raw in [sparse(10), islands(), vec![0; 5 << 20]] {
            let place = Place::new();
            let engine = Engine::start(Script {
                daemon: Some(Arc::clone(&daemon)),
                ..raw_disk(raw.clone())
            });
            for connections in ["1", "4"] {
                let program = place.import(&engine).args([
                    "--insecure",
                    "--force",
                    "--connections",
                    connections,
                ]);
                program.run().assert_success("the real daemon");
                place.assert_disk(&raw);
                assert!(disk::data_bytes(&place.target()) <= 12 * MIB);
            }
            assert_ended(&engine, "finished_success");
        }
    }
}

#[test]
fn imports_succeed_if_the_engine_forgets_ended_transfers() {
    let place = Place::new();
    let engine = Engine::start(Script { forgetful: true, ..raw_disk(sparse(11)) });
    for _ in 0..3 {
        place.import(&engine).arg("--force").run().assert_success("again");
    }
    place.assert_disk(&sparse(11));
    assert_eq!(engine.transfers().len(), 3);
    assert_eq!(engine.count(&format!("GET /ovirt-engine/api/disks/{DISK_ID}")), 3);
    assert_ended(&engine, "finished_success");
}
