//! Image servers that fail: the import resumes where it can.

use testkit::cases::check_all;
use testkit::disk;
use testkit::ovirt::{Engine, Extents, Fault, Script};

use crate::imageio::{MIB, Place, assert_ended, raw_disk};

/// Large enough that one percent is more than a few writes of the server.
const DISK_BYTES: u64 = 32 * MIB;

/// Cuts in a row of each transfer, and bytes by which each connection gets further.
const CUTS: u64 = 5;
const STEP_BYTES: u64 = 8 << 10;

#[test]
fn five_cuts_in_a_row_cost_less_than_one_percent() {
    let raw = disk::content(1, DISK_BYTES);
    check_all([10_u64, 50, 90], |percent| {
        let place = Place::new();
        let first = DISK_BYTES * percent / 100;
        let engine = Engine::start(Script {
            faults: (0..CUTS).map(|n| Fault::CutAt(first + n * STEP_BYTES)).collect(),
            ..raw_disk(raw.clone())
        });
        // On a slow machine, the reader may open another connection between two cuts. The server
        // then sends again what is on the way in the first.
        let importer = place.import(&engine).args(["--connections", "1"]);
        importer.run().assert_success("five cuts");
        place.assert_disk(&raw);
        let sent = engine.body_bytes();
        assert!(
            sent <= DISK_BYTES + DISK_BYTES / 100,
            "{sent} bytes sent for a disk of {DISK_BYTES}"
        );
        assert_ended(&engine, "finished_success");
    });
}

#[test]
#[ignore = "slow: waits 16 s"]
fn bursts_of_5xx_busy_servers_resets_and_stalls_are_overcome() {
    let raw = disk::content(2, DISK_BYTES);
    for extents in [Extents::Served, Extents::Unsupported] {
        let place = Place::new();
        let half = DISK_BYTES / 2;
        let engine = Engine::start(Script {
            extents,
            faults: vec![
                Fault::Refuse,
                Fault::Status(503, None),
                Fault::ResetAt(half),
                Fault::Status(500, None),
                Fault::Status(502, None),
                Fault::StallAt(half + MIB),
                Fault::Status(429, Some("1".into())),
                Fault::ResetAt(DISK_BYTES - 1),
            ],
            ..raw_disk(raw.clone())
        });
        let program = place.import(&engine).args(["--no-progress-timeout", "4"]);
        program.run().assert_success("eight faults");
        place.assert_disk(&raw);
        assert_ended(&engine, "finished_success");
    }
}

#[test]
#[ignore = "slow: waits 51 s"]
fn the_ticket_is_extended_while_the_import_is_slow() {
    let place = Place::new();
    let raw = disk::content(3, 320 << 10);
    let engine = Engine::start(raw_disk(raw.clone()));
    // The first 256 KiB take 40 seconds at this rate.
    place.import(&engine).args(["--limit-rate", "6500"]).run().assert_success("slowly");
    place.assert_disk(&raw);
    let transfers = engine.transfers();
    assert!(transfers[0].extended >= 1, "{transfers:?}");
    assert_ended(&engine, "finished_success");
}

#[test]
fn a_revoked_ticket_is_an_error() {
    let place = Place::new();
    let mut faults = vec![Fault::CutAt(MIB)];
    faults.resize(50, Fault::Status(403, None));
    let engine = Engine::start(Script { faults, ..raw_disk(disk::content(4, 4 * MIB)) });
    place.assert_refused(place.import(&engine), "403");
    assert_ended(&engine, "finished_success");
}
