//! Ends of imports: the transfer and the session at the engine are always closed.

use rustix::process::Signal;
use testkit::disk;
use testkit::ovirt::{DISK_ID, Engine, Fault, Script};
use testkit::process::Program;
use testkit::wait;

use crate::imageio::{MIB, Place, address, assert_ended, raw_disk, sparse};

/// Exit code of a process that ends because of SIGTERM (128 + 15).
const TERMINATED: i32 = 143;

/// Waits until the engine got the request `line`.
#[track_caller]
fn wait_for(engine: &Engine, line: &str) {
    let complaint = || format!("{line} never came: {:?}", engine.calls());
    wait::until(complaint, || engine.count(line) > 0);
}

#[track_caller]
fn terminate(program: Program, wait: impl FnOnce()) {
    let running = program.start();
    wait();
    running.signal(Signal::TERM);
    let finished = running.wait();
    assert_eq!(finished.code(), TERMINATED, "{}", finished.stderr);
}

#[test]
fn sigterm_in_the_middle_of_the_data_ends_the_transfer() {
    let place = Place::new();
    let engine = Engine::start(Script { rate: Some(MIB), ..raw_disk(disk::content(1, 30 * MIB)) });
    terminate(place.import(&engine), || {
        wait::until(|| "no data", || engine.body_bytes() >= MIB);
    });
    assert_ended(&engine, "finished_success");
    assert!(!place.target().exists());
}

#[test]
fn sigterm_while_the_transfer_initializes_cancels_it() {
    let place = Place::new();
    let engine = Engine::start(Script { initializing: usize::MAX, ..raw_disk(sparse(1)) });
    terminate(place.import(&engine), || wait_for(&engine, "POST /ovirt-engine/api/imagetransfers"));
    assert_ended(&engine, "cancelled_user");
}

#[test]
fn sigterm_while_the_disk_is_locked_logs_out() {
    let place = Place::new();
    let engine = Engine::start(Script {
        locked: vec![testkit::ovirt::DISK_IS_LOCKED; 1000],
        ..raw_disk(sparse(1))
    });
    terminate(place.import(&engine), || wait_for(&engine, "POST /ovirt-engine/api/imagetransfers"));
    assert!(engine.transfers().is_empty() && engine.is_logged_out(), "{:?}", engine.calls());
}

#[test]
#[ignore = "slow: waits 5 s"]
fn an_unexpected_phase_is_an_error_and_cancels_the_transfer() {
    for (initializing, phase) in
        [(0, "paused_system"), (2, "paused_system"), (1, "resuming"), (0, "unknown")]
    {
        let place = Place::new();
        let engine = Engine::start(Script { initializing, phase, ..raw_disk(sparse(1)) });
        place.assert_refused(place.import(&engine), &format!("Error transfer phase: {phase}"));
        assert_ended(&engine, "cancelled_user");
    }
    for phase in ["finished_failure", "cancelled_system"] {
        let place = Place::new();
        let engine = Engine::start(Script { phase, ..raw_disk(sparse(1)) });
        place.assert_refused(place.import(&engine), &format!("Error transfer phase: {phase}"));
        // These transfers have ended already, so that they are neither cancelled nor finalized.
        assert_ended(&engine, phase);
        assert!(
            engine
                .calls()
                .iter()
                .all(|call| !call.line.ends_with("/cancel") && !call.line.ends_with("/finalize"))
        );
    }
}

#[test]
fn a_target_that_cannot_be_written_ends_the_transfer() {
    let place = Place::new();
    let engine = Engine::start(raw_disk(sparse(1)));
    // A path below a file cannot be created.
    let target = place.path("password").join("disk.img");
    let program = place.program("import").arg(address(&engine)).arg(target);
    program.run().assert_failure(7, "");
    assert_ended(&engine, "finished_success");
}

#[test]
fn an_image_server_that_stays_broken_ends_the_transfer() {
    let place = Place::new();
    let mut faults = vec![Fault::CutAt(5 << 20)];
    faults.resize(100, Fault::Status(500, None));
    let engine = Engine::start(Script { faults, ..raw_disk(disk::content(1, 8 * MIB)) });
    place.assert_refused(place.import(&engine).args(["--retries", "2"]), "500");
    assert_ended(&engine, "finished_success");
}

#[test]
fn a_wrong_or_missing_password_is_reported() {
    let place = Place::new();
    let engine = Engine::start(raw_disk(sparse(1)));
    std::fs::write(place.path("password"), "guessed").unwrap();
    let finished = place.assert_refused(
        place.import(&engine),
        "Cannot authenticate user: The user name or password is incorrect",
    );
    assert!(!finished.stderr.contains("guessed"));
    assert!(engine.transfers().is_empty());
    let nobody = Program::new(crate::BINARY).arg("import").arg(address(&engine));
    nobody.arg(place.target()).run().assert_failure(2, "oVirt needs a user name and a password");
}

#[test]
fn missing_disks_and_snapshots_are_named_and_the_session_is_closed() {
    let place = Place::new();
    let engine = Engine::start(raw_disk(sparse(1)));
    let unknown = address(&engine).replace(DISK_ID, "no-such-disk");
    let program = place.program("import").arg(unknown).arg(place.target());
    place.assert_refused(program, "Entity not found");
    assert!(engine.is_logged_out(), "{:?}", engine.calls());

    let engine = Engine::start(raw_disk(sparse(1)));
    let program = place.import(&engine).args(["--checkpoint", "no-such-snapshot"]);
    place.assert_refused(program, "has no snapshot no-such-snapshot");
    assert!(engine.transfers().is_empty() && engine.is_logged_out(), "{:?}", engine.calls());
}

#[test]
#[ignore = "slow: waits 8 s"]
fn an_expired_token_is_replaced_and_a_useless_one_is_an_error() {
    for uses in [1, 2, 3] {
        let place = Place::new();
        let engine =
            Engine::start(Script { token_uses: uses, initializing: 2, ..raw_disk(sparse(1)) });
        place.import_equals(&engine, &sparse(1));
        assert_ended(&engine, "finished_success");
    }
    let place = Place::new();
    let engine = Engine::start(Script { token_uses: 0, ..raw_disk(sparse(1)) });
    let finished = place.assert_refused(place.import(&engine), "401");
    assert!(!finished.stderr.contains("token-"), "{}", finished.stderr);
    assert!(engine.transfers().is_empty());
}
