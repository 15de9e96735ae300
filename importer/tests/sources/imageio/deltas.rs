//! Deltas on the command line.

use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

use rustix::process::Signal;
use testkit::disk;
use testkit::images::{Compression, Content, Delta, Spec};
use testkit::ovirt::{Contents, Engine, PASSWORD, Script, USER};
use testkit::process::Program;
use testkit::random::Random;
use testkit::syscalls;

use super::{MIB, Place, address, assert_ended, raw_disk};

fn delta(place: &Place) -> Delta {
    let spec = Spec {
        compression: Compression::Zlib,
        cluster_size: 16 << 10,
        virtual_size: 12 * MIB,
        resized_to: Some(14 * MIB),
        ..Spec::new(Content::Empty)
    };
    spec.build_delta(12 * MIB, &place.path(""), "delta")
}

/// `cdi-importer apply` of `source` to the disk of the place.
fn apply(place: &Place, delta: &Delta, source: impl Into<OsString>) -> Program {
    let program = Program::new(crate::BINARY).args(["apply", "--base", &delta.base_name()]);
    program.arg(source).arg(place.target())
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_delta_is_applied_from_a_file_from_a_pipe_and_from_an_engine() {
    let place = Place::new();
    let delta = delta(&place);
    let cow = std::fs::read(&delta.qcow2).unwrap().into();
    let engine = Engine::start(Script {
        snapshots: [("new".to_owned(), Contents { cow, ..Contents::default() })].into(),
        ..raw_disk(vec![0; 512])
    });
    let checkpoints = ["--checkpoint", "new", "--previous-checkpoint", "old"];
    let from_engine = apply(&place, &delta, address(&engine));
    for (program, case) in [
        (apply(&place, &delta, &delta.qcow2), "file"),
        (apply(&place, &delta, "-").stdin_file(&delta.qcow2), "pipe"),
        (from_engine.args(checkpoints).args(place.as_user(USER, PASSWORD)), "engine"),
    ] {
        std::fs::copy(&delta.base, place.target()).unwrap();
        program.run().assert_success(case);
        disk::assert_same(&place.target(), &delta.raw, delta.virtual_size, case);
    }
    let transfer = engine.transfers().remove(0);
    assert_eq!((transfer.format.as_str(), transfer.subject.as_str()), ("cow", "new"));
    assert_ended(&engine, "finished_success");
}

#[test]
#[ignore = "slow: waits 5 s"]
fn a_delta_can_be_applied_again_after_kills() {
    const ROUNDS: u64 = 24;
    const WINDOW: Duration = Duration::from_millis(300);
    let place = Place::new();
    let delta = delta(&place);
    std::fs::copy(&delta.base, place.target()).unwrap();
    let image = std::fs::read(&delta.qcow2).unwrap();
    let mut random = Random::new(1);
    let mut killed = 0;
    for round in 0..ROUNDS {
        // The disk is as the rounds before left it.
        let image = image.clone();
        let slowly = move |pipe: &mut dyn Write| {
            for piece in image.chunks(image.len().div_ceil(30)) {
                pipe.write_all(piece)?;
                std::thread::sleep(WINDOW / 40);
            }
            Ok(())
        };
        let running = apply(&place, &delta, "-").stdin(slowly).start();
        let moment = random.below(u64::try_from(WINDOW.as_micros()).unwrap());
        // The signal hits the process wherever it is at that moment.
        std::thread::sleep(Duration::from_micros(moment));
        running.signal(if round % 2 == 0 { Signal::KILL } else { Signal::TERM });
        killed += u32::from(running.wait().code() != 0);
        let length = place.target().metadata().unwrap().len();
        assert!(length >= 12 * MIB, "the disk was cut to {length} bytes");
    }
    assert!(killed > 10, "{killed} of {ROUNDS} were killed");
    apply(&place, &delta, &delta.qcow2).run().assert_success("at last");
    disk::assert_same(&place.target(), &delta.raw, delta.virtual_size, "at last");
}

#[test]
#[ignore = "tools: qemu-img, qemu-io, strace"]
fn the_base_in_the_deltas_header_is_never_opened() {
    let place = Place::new();
    let delta = delta(&place);
    let secret = place.path("secret");
    std::fs::write(&secret, vec![b's'; 1 << 20]).unwrap();
    let json = format!(
        r#"json:{{"driver":"raw","file":{{"driver":"file","filename":"{}"}}}}"#,
        secret.display()
    );
    for (name, code) in [
        (secret.display().to_string(), 0),
        ("../secret".to_owned(), 0),
        (json, 4),
        ("nbd:unix:/run/secret".to_owned(), 0),
    ] {
        delta.rename_base(&name);
        std::fs::copy(&delta.base, place.target()).unwrap();
        let log = place.path("strace");
        let program = Program::new(crate::BINARY).args(["apply", "--base", "secret"]);
        let program = program.arg(&delta.qcow2).arg(place.target());
        let finished = syscalls::watched(program, &log).start().wait();
        assert_eq!(finished.code(), code, "{name}: {}", finished.stderr);
        let calls = std::fs::read_to_string(&log).unwrap();
        assert!(!calls.contains("secret\""), "{name}: the base was opened\n{calls}");
        let opened = syscalls::created(&log);
        assert!(opened.iter().all(|call| call.contains("disk.img")), "{opened:?}");
        if code == 0 {
            disk::assert_same(&place.target(), &delta.raw, delta.virtual_size, &name);
        }
    }
}
