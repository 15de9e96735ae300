//! Imports of whole oVirt disks.

use std::sync::Arc;

use testkit::certs::Authority;
use testkit::disk;
use testkit::images::{Content, Spec};
use testkit::ovirt::{
    Contents, DISK_ID, DISK_IS_LOCKED, DISKS_ARE_LOCKED, Daemon, Engine, Extents, IMAGE_ID, Script,
};

use super::{MIB, Place, assert_ended, assert_imports, import, raw_disk, sparse};

#[test]
fn a_disk_equals_the_engines_with_and_without_extents() {
    for extents in [Extents::Served, Extents::Unsupported] {
        for raw in [sparse(1), vec![0; 3 << 20], vec![7; 512], disk::content(4, 2 * MIB)] {
            let script = Script { extents: extents.clone(), ..raw_disk(raw.clone()) };
            let engine = Engine::start(script);
            assert_imports(&engine, &raw, &[]);
            assert_ended(&engine, "finished_success");
            let transfers = engine.transfers();
            let transfers = transfers.iter().map(|t| (t.format.as_str(), t.subject.as_str()));
            assert_eq!(transfers.collect::<Vec<_>>(), [("raw", "disk")]);
        }
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
    let (place, engine) = (Place::new(), Engine::start(raw_disk(islands())));
    let finished = import(&place, &engine).run();
    finished.assert_success("islands");
    // The bytes that are in flight when an island ends are sent in addition.
    let sent = engine.body_bytes();
    assert!(sent < 16 * MIB, "{sent} bytes sent for 3 MiB of data");
    assert!(finished.written_bytes() < 4 * MIB, "{} bytes written", finished.written_bytes());
    assert!(disk::data_bytes(&place.target()) <= 3 * MIB);
    assert!(std::fs::read(place.target()).unwrap() == islands());
}

/// The engine was asked for a raw disk, so what its guest wrote is not an image.
#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn an_image_in_a_raw_disk_stays_as_it_is_whatever_its_extents() {
    let place = Place::new();
    for content in [Content::Sparse, Content::RandomOrder] {
        let image = Spec { virtual_size: 40 * MIB, ..Spec::new(content) };
        let image = image.build(&place.path(""), "image");
        // The disk continues behind the image.
        let mut raw = std::fs::read(&image.qcow2).unwrap();
        raw.resize(raw.len() + (30 << 20), 0);
        assert_imports(&Engine::start(raw_disk(raw.clone())), &raw, &[]);
    }
}

#[test]
fn a_snapshot_is_imported_by_its_id_and_the_newest_one_as_the_disk() {
    let (now, then) = (sparse(5), sparse(6));
    let older = Contents { raw: then.clone().into(), ..Contents::default() };
    let script =
        Script { snapshots: [("older".to_owned(), older)].into(), ..raw_disk(now.clone()) };
    for (checkpoint, raw, subject) in [("older", &then, "older"), (IMAGE_ID, &now, "disk")] {
        let engine = Engine::start(script.clone());
        assert_imports(&engine, raw, &["--checkpoint", checkpoint]);
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
                let engine = Engine::start(Script { locked: vec![locked], ..raw_disk(sparse(7)) });
                assert_imports(&engine, &sparse(7), &[]);
                assert_eq!(engine.count("POST /ovirt-engine/api/imagetransfers"), 2);
                assert_ended(&engine, "finished_success");
            });
        }
    });
}

#[test]
fn an_initializing_transfer_is_waited_for_and_a_forgotten_one_has_ended() {
    for (initializing, forgetful) in [(3, false), (0, true)] {
        let engine = Engine::start(Script { initializing, forgetful, ..raw_disk(sparse(8)) });
        assert_imports(&engine, &sparse(8), &[]);
        assert_eq!(engine.count("POST /ovirt-engine/api/imagetransfers"), 1);
        assert_eq!(engine.count(&format!("GET /ovirt-engine/api/disks/{DISK_ID}")), 1);
        assert_ended(&engine, "finished_success");
    }
}

#[test]
#[ignore = "server: ovirt-imageio"]
fn the_real_image_server_serves_the_same_disk() {
    let authority = Authority::new().unwrap();
    for tls in [None, Some(&authority)] {
        let daemon = Arc::new(Daemon::start(tls));
        for raw in [sparse(10), islands(), vec![0; 5 << 20]] {
            let daemon = Some(Arc::clone(&daemon));
            let engine = Engine::start(Script { daemon, ..raw_disk(raw.clone()) });
            for connections in ["1", "4"] {
                let place = Place::new();
                let options = ["--insecure", "--connections", connections];
                let finished = import(&place, &engine).args(options).run();
                finished.assert_success("the real daemon");
                assert!(disk::data_bytes(&place.target()) <= 12 * MIB);
                assert!(std::fs::read(place.target()).unwrap() == raw);
            }
            assert_ended(&engine, "finished_success");
        }
    }
}
