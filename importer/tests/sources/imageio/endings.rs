//! Ends of imports: the transfer and the session at the engine are always closed.

use rustix::process::Signal;
use testkit::disk;
use testkit::ovirt::{DISK_ID, DISK_IS_LOCKED, Engine, Script};
use testkit::wait;

use super::{
    MIB, Place, address, assert_ended, assert_imports, assert_refused, import, raw_disk, sparse,
};
use crate::place::SOURCE_FAILED;

/// Exit code of a process that ends because of SIGTERM (128 + 15).
const TERMINATED: i32 = 143;

const START: &str = "POST /ovirt-engine/api/imagetransfers";

#[test]
fn sigterm_ends_the_transfer_and_logs_out() {
    let data = Script { rate: Some(MIB), ..raw_disk(disk::content(1, 30 * MIB)) };
    let initializing = Script { initializing: usize::MAX, ..raw_disk(sparse(1)) };
    let locked = Script { locked: vec![DISK_IS_LOCKED; 1000], ..raw_disk(sparse(1)) };
    for (script, bytes, phase) in [
        (data, MIB, Some("finished_success")),
        (initializing, 0, Some("cancelled_user")),
        (locked, 0, None),
    ] {
        let (place, engine) = (Place::new(), Engine::start(script));
        let running = import(&place, &engine).start();
        let complaint = || format!("{phase:?}: not there: {:?}", engine.calls());
        wait::until(complaint, || engine.count(START) > 0 && engine.body_bytes() >= bytes);
        running.signal(Signal::TERM);
        let finished = running.wait();
        assert_eq!(finished.code(), TERMINATED, "{phase:?}: {}", finished.stderr);
        match phase {
            Some(phase) => assert_ended(&engine, phase),
            None => assert!(engine.transfers().is_empty() && engine.is_logged_out()),
        }
        assert!(!place.target().exists());
    }
}

#[test]
#[ignore = "slow: waits 5 s"]
fn an_unexpected_phase_is_an_error_and_cancels_the_transfer() {
    // The last two transfers have ended already, so that they are neither cancelled nor finalized.
    for (initializing, phase, end) in [
        (0, "paused_system", None),
        (2, "paused_system", None),
        (1, "resuming", None),
        (0, "unknown", None),
        (0, "finished_failure", Some("finished_failure")),
        (0, "cancelled_system", Some("cancelled_system")),
    ] {
        let engine = Engine::start(Script { initializing, phase, ..raw_disk(sparse(1)) });
        assert_refused(&engine, &[], &format!("Error transfer phase: {phase}"));
        assert_ended(&engine, end.unwrap_or("cancelled_user"));
        let mut calls = engine.calls().into_iter();
        let is_end = |line: &str| line.ends_with("/cancel") || line.ends_with("/finalize");
        assert_eq!(calls.any(|call| is_end(&call.line)), end.is_none(), "{phase}");
    }
}

#[test]
fn a_target_that_cannot_be_written_ends_the_transfer() {
    let (place, engine) = (Place::new(), Engine::start(raw_disk(sparse(1))));
    // A path below a file cannot be created.
    std::fs::write(place.target(), "").unwrap();
    let program = testkit::process::Program::new(crate::BINARY)
        .args(["import", &address(&engine)])
        .arg(place.target().join("disk.img"))
        .args(place.as_user(testkit::ovirt::USER, testkit::ovirt::PASSWORD));
    program.run().assert_failure(7, "");
    assert_ended(&engine, "finished_success");
}

#[test]
fn strangers_missing_disks_and_missing_snapshots_are_refused() {
    let engine = Engine::start(raw_disk(sparse(1)));
    let place = Place::new();
    let stranger = import(&place, &engine);
    place.write("password", "guessed");
    let text = "Cannot authenticate user: The user name or password is incorrect";
    let finished = place.assert_refused(stranger, SOURCE_FAILED, text);
    assert!(!finished.stderr.contains("guessed"), "{}", finished.stderr);

    let unknown = address(&engine).replace(DISK_ID, "no-such-disk");
    let user = place.as_user(testkit::ovirt::USER, testkit::ovirt::PASSWORD);
    let program = place.import(&unknown).args(user);
    place.assert_refused(program, SOURCE_FAILED, "Entity not found");
    assert!(engine.is_logged_out(), "{:?}", engine.calls());
    let options = ["--checkpoint", "no-such-snapshot"];
    assert_refused(&engine, &options, "has no snapshot no-such-snapshot");
    assert!(engine.transfers().is_empty() && engine.is_logged_out(), "{:?}", engine.calls());
}

#[test]
#[ignore = "slow: waits 8 s"]
fn an_expired_token_is_replaced_and_a_useless_one_is_an_error() {
    for uses in [1, 2, 3] {
        let engine =
            Engine::start(Script { token_uses: uses, initializing: 2, ..raw_disk(sparse(1)) });
        assert_imports(&engine, &sparse(1), &[]);
        assert_ended(&engine, "finished_success");
    }
    let engine = Engine::start(Script { token_uses: 0, ..raw_disk(sparse(1)) });
    let place = Place::new();
    let finished = place.assert_refused(import(&place, &engine), SOURCE_FAILED, "401");
    assert!(!finished.stderr.contains("token-"), "{}", finished.stderr);
    assert!(engine.transfers().is_empty());
}
