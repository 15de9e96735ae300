//! Image servers that fail: the import resumes where it can.

use testkit::disk;
use testkit::ovirt::{Engine, Extents, Fault, Script};

use super::{MIB, assert_ended, assert_imports, assert_refused, raw_disk};

const DISK_BYTES: u64 = 32 * MIB;

#[test]
#[ignore = "slow: waits 16 s"]
fn bursts_of_5xx_busy_servers_resets_and_stalls_are_overcome() {
    let raw = disk::content(2, DISK_BYTES);
    for extents in [Extents::Served, Extents::Unsupported] {
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
        assert_imports(&engine, &raw, &["--no-progress-timeout", "4"]);
        assert_ended(&engine, "finished_success");
    }
}

#[test]
#[ignore = "slow: waits 51 s"]
fn the_ticket_is_extended_while_the_import_is_slow() {
    let raw = disk::content(3, 320 << 10);
    let engine = Engine::start(raw_disk(raw.clone()));
    // The first 256 KiB take 40 seconds at this rate.
    assert_imports(&engine, &raw, &["--limit-rate", "6500"]);
    let transfers = engine.transfers();
    assert!(transfers[0].extended >= 1, "{transfers:?}");
    assert_ended(&engine, "finished_success");
}

#[test]
fn a_revoked_ticket_and_a_server_that_stays_broken_end_the_transfer() {
    for (at, status, options) in [(MIB, 403, &[][..]), (5 << 20, 500, &["--retries", "1"])] {
        let mut faults = vec![Fault::CutAt(at)];
        faults.resize(50, Fault::Status(status, None));
        let engine = Engine::start(Script { faults, ..raw_disk(disk::content(4, 8 * MIB)) });
        assert_refused(&engine, options, &status.to_string());
        assert_ended(&engine, "finished_success");
    }
}
