//! Deltas on the command line.

use std::io::Write;
use std::time::Duration;

use rustix::process::Signal;
use testkit::disk;
use testkit::images::{Compression, Content, Delta, Spec};
use testkit::ovirt::{Contents, Engine, Script};
use testkit::process::Program;
use testkit::random::Random;
use testkit::syscalls;

use crate::imageio::{MIB, Place, address, assert_ended, raw_disk, read};

fn delta(place: &Place, name: &str) -> Delta {
    let spec = Spec {
        compression: Compression::Zlib,
        cluster_size: 16 << 10,
        virtual_size: 12 * MIB,
        resized_to: Some(14 * MIB),
        ..Spec::new(Content::Empty)
    };
    spec.build_delta(12 * MIB, place.folder.path(), name)
}

/// `cdi-importer apply` for the disk of the place, which gets the base of the delta.
fn apply(place: &Place, delta: &Delta) -> Program {
    std::fs::copy(&delta.base, place.target()).unwrap();
    Program::new(crate::BINARY).args(["apply", "--base", &delta.base_name()])
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_delta_is_applied_from_a_file_from_a_pipe_and_from_an_engine() {
    let place = Place::new();
    let delta = delta(&place, "delta");
    let file = apply(&place, &delta).arg(&delta.qcow2).arg(place.target());
    file.run().assert_success("file");
    disk::assert_same(&place.target(), &delta.raw, delta.virtual_size, "file");
    let pipe = apply(&place, &delta).arg("-").arg(place.target()).stdin_file(&delta.qcow2);
    pipe.run().assert_success("pipe");
    disk::assert_same(&place.target(), &delta.raw, delta.virtual_size, "pipe");

    let cow = read(&delta.qcow2).into();
    let engine = Engine::start(Script {
        snapshots: [("new".to_owned(), Contents { cow, ..Contents::default() })].into(),
        ..raw_disk(vec![0; 512])
    });
    std::fs::copy(&delta.base, place.target()).unwrap();
    let checkpoints =
        ["--checkpoint", "new", "--previous-checkpoint", "old", "--base", &delta.base_name()];
    let program = place.program("apply").args(checkpoints).arg(address(&engine));
    program.arg(place.target()).run().assert_success("engine");
    disk::assert_same(&place.target(), &delta.raw, delta.virtual_size, "engine");
    let transfer = engine.transfers().remove(0);
    assert_eq!((transfer.format.as_str(), transfer.subject.as_str()), ("cow", "new"));
    assert_ended(&engine, "finished_success");
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_delta_can_be_applied_again_after_kills() {
    const ROUNDS: u64 = 24;
    const WINDOW: Duration = Duration::from_millis(300);
    let place = Place::new();
    let delta = delta(&place, "delta");
    apply(&place, &delta);
    let image = read(&delta.qcow2);
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
        let program = Program::new(crate::BINARY);
        let program =
            program.args(["apply", "--base", &delta.base_name(), "-"]).arg(place.target());
        let running = program.stdin(slowly).start();
        let moment = random.below(u64::try_from(WINDOW.as_micros()).unwrap());
        // The signal hits the process wherever it is at that moment.
        std::thread::sleep(Duration::from_micros(moment));
        running.signal(if round % 2 == 0 { Signal::KILL } else { Signal::TERM });
        killed += u32::from(running.wait().code() != 0);
        let length = place.target().metadata().unwrap().len();
        assert!(length >= 12 * MIB, "the disk was cut to {length} bytes");
    }
    assert!(killed > 10, "{killed} of {ROUNDS} were killed");
    let program = Program::new(crate::BINARY);
    let program = program.args(["apply", "--base", &delta.base_name()]).arg(&delta.qcow2);
    program.arg(place.target()).run().assert_success("at last");
    disk::assert_same(&place.target(), &delta.raw, delta.virtual_size, "at last");
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn failures_have_their_exit_codes_and_leave_the_disk() {
    let place = Place::new();
    let delta = delta(&place, "delta");
    let other = Program::new(crate::BINARY).args(["apply", "--base", "other"]);
    std::fs::copy(&delta.base, place.target()).unwrap();
    other.arg(&delta.qcow2).arg(place.target()).run().assert_failure(
        4,
        "snapshot backing file 'delta.base' does not match expected checkpoint 'other', unable to safely rebase snapshot",
    );
    assert!(read(&place.target()) == read(&delta.base));

    let whole = read(&delta.qcow2);
    let part = whole[..whole.len() / 2].to_vec();
    let truncated = apply(&place, &delta).arg("-").arg(place.target()).stdin_bytes(part).run();
    assert!([3, 4].contains(&truncated.code()) && !truncated.crashed(), "{truncated:?}");
    assert!(place.target().exists());

    let missing = Program::new(crate::BINARY).args(["apply", "--base", "delta.base"]);
    missing.arg(&delta.qcow2).arg(place.path("missing")).run().assert_failure(7, "");
    assert!(!place.path("missing").exists());
}

#[test]
#[ignore = "tools: qemu-img, qemu-io, strace"]
fn the_base_in_the_deltas_header_is_never_opened() {
    let place = Place::new();
    let delta = delta(&place, "delta");
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
