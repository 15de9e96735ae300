//! However an import ends: the engine is told, and the session is closed.

use std::time::Duration;

use rustix::process::Signal;
use testkit::disk;
use testkit::ovirt::{DISK_ID, Engine, Fault, Script};
use testkit::process::Program;
use testkit::wait;

use crate::imageio::{MIB, Place, address, assert_ended, raw_disk, sparse};

/// Exit code of a process that ends because of SIGTERM (128 + 15).
const TERMINATED: i32 = 143;

const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until the engine was asked for `line`.
#[track_caller]
fn wait_for(engine: &Engine, line: &str) {
    let complaint = || format!("{line} never came: {:?}", engine.calls());
    wait::until(PATIENCE, complaint, || engine.count(line) > 0);
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
        wait::until(PATIENCE, || "no data", || engine.body_bytes() >= MIB);
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
    let engine =
        Engine::start(Script { locked: vec![testkit::ovirt::DISK_IS_LOCKED; 1000], ..raw_disk(sparse(1)) });
    terminate(place.import(&engine), || wait_for(&engine, "POST /ovirt-engine/api/imagetransfers"));
    assert!(engine.transfers().is_empty() && engine.is_logged_out(), "{:?}", engine.calls());
}

#[test]
fn a_phase_that_is_none_is_an_error_and_the_transfer_is_cancelled() {
    for (initializing, phase) in [(0, "paused_system"), (2, "paused_system"), (1, "resuming"), (0, "unknown")]
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
        // Nothing is left to be done.
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
fn a_disk_that_does_not_fit_or_cannot_be_written_ends_the_transfer() {
    let place = Place::new();
    let engine = Engine::start(raw_disk(sparse(1)));
    // Below a file there can be none.
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
fn who_is_not_let_in_is_told_so() {
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
fn what_is_not_there_is_named_and_the_session_closed() {
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
fn a_token_that_expires_is_replaced_and_one_that_is_never_good_is_an_error_without_secrets() {
    for uses in [1, 2, 3] {
        let place = Place::new();
        let engine = Engine::start(Script { token_uses: uses, initializing: 2, ..raw_disk(sparse(1)) });
        place.import_equals(&engine, &sparse(1));
        assert_ended(&engine, "finished_success");
    }
    let place = Place::new();
    let engine = Engine::start(Script { token_uses: 0, ..raw_disk(sparse(1)) });
    let finished = place.assert_refused(place.import(&engine), "401");
    assert!(!finished.stderr.contains("token-"), "{}", finished.stderr);
    assert!(engine.transfers().is_empty());
}
