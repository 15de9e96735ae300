//! oVirt disks in stages: one pod for each checkpoint, as CDI's controller runs them.

use std::net::TcpListener;

use testkit::disk;
use testkit::images::{Content, Delta, Spec};
use testkit::ovirt::{Contents, DISK_ID, Engine, PASSWORD, Script, USER};
use testkit::process::{Finished, Program};

use crate::imageio::{MIB, Place, assert_ended, raw_disk, read, sparse};

const SUCCESS: &str =
    r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"message":"Import Complete"}"#;

/// A volume in filesystem mode, which outlives its pods.
struct Volume {
    place: Place,
}

impl Volume {
    fn new() -> Self {
        let place = Place::new();
        for folder in ["data", "dev"] {
            std::fs::create_dir(place.path(folder)).unwrap();
        }
        Self { place }
    }

    fn disk(&self) -> std::path::PathBuf {
        self.place.path("data/disk.img")
    }

    /// Runs one pod. Returns how it ended, and its termination message.
    fn run(&self, engine: &Engine, env: &[(&str, &str)]) -> (Finished, Option<String>) {
        let log = self.place.path("dev/termination-log");
        std::fs::remove_file(&log).ok();
        let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let api = engine.api_url();
        let basic = [
            ("CDI_WORKERS_TEST_ROOT", self.place.folder.path().to_str().unwrap()),
            ("CDI_WORKERS_TEST_METRICS_ADDR", &metrics),
            ("CDI_WORKERS_CONTACT_SECONDS", "1"),
            ("IMPORTER_SOURCE", "imageio"),
            ("IMPORTER_ENDPOINT", &api),
            ("IMPORTER_DISK_ID", DISK_ID),
            ("IMPORTER_ACCESS_KEY_ID", USER),
            ("IMPORTER_SECRET_KEY", PASSWORD),
            ("IMPORTER_CONTENTTYPE", "kubevirt"),
            ("OWNER_UID", "uid"),
            ("PREALLOCATION", "false"),
            ("FILESYSTEM_OVERHEAD", "0"),
            ("INSECURE_TLS", "false"),
        ];
        let program = Program::new(crate::BINARY).args(["-alsologtostderr", "-v=3"]);
        let program = basic
            .iter()
            .chain(env)
            .fold(program, |program, (name, value)| program.env(name, *value));
        let finished = program.run();
        assert!(!finished.crashed() && !finished.stderr.contains(PASSWORD), "{}", finished.stderr);
        (finished, std::fs::read_to_string(log).ok())
    }

    #[track_caller]
    fn succeeds(&self, engine: &Engine, env: &[(&str, &str)]) -> Finished {
        let (finished, message) = self.run(engine, env);
        assert_eq!(
            (finished.code(), message.as_deref()),
            (0, Some(SUCCESS)),
            "{}",
            finished.stderr
        );
        finished
    }

    #[track_caller]
    fn fails(&self, engine: &Engine, env: &[(&str, &str)], wanted: &str) {
        let (finished, message) = self.run(engine, env);
        assert_eq!((finished.code(), message.as_deref()), (1, Some(wanted)), "{}", finished.stderr);
    }
}

/// An engine with a snapshot of 8 MiB and the delta to the next; names are those of checkpoints.
fn warm(place: &Place) -> (Delta, Engine) {
    let spec = Spec { virtual_size: 8 * MIB, ..Spec::new(Content::Empty) };
    let delta = spec.build_delta(8 * MIB, place.folder.path(), "delta");
    delta.rename_base("/rhev/data-center/mnt/images/first");
    let first = Contents { raw: read(&delta.base).into(), ..Contents::default() };
    let second = Contents { cow: read(&delta.qcow2).into(), ..Contents::default() };
    let engine = Engine::start(Script {
        snapshots: [("first".to_owned(), first), ("second".to_owned(), second)].into(),
        ..raw_disk(vec![0; 512])
    });
    (delta, engine)
}

const FIRST: [(&str, &str); 2] =
    [("IMPORTER_CURRENT_CHECKPOINT", "first"), ("IMPORTER_IMAGE_SIZE", "9Mi")];
const SECOND: [(&str, &str); 3] = [
    ("IMPORTER_CURRENT_CHECKPOINT", "second"),
    ("IMPORTER_PREVIOUS_CHECKPOINT", "first"),
    ("IMPORTER_IMAGE_SIZE", "20Mi"),
];

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_warm_import_of_two_stages_makes_the_final_disk() {
    use std::os::unix::fs::PermissionsExt;
    let volume = Volume::new();
    let (delta, engine) = warm(&volume.place);
    volume.succeeds(&engine, &FIRST);
    disk::assert_same(&volume.disk(), &delta.base, 8 * MIB, "the first stage");
    assert_eq!(volume.disk().metadata().unwrap().len(), 9 * MIB, "the first stage is resized");
    std::fs::set_permissions(volume.disk(), std::fs::Permissions::from_mode(0o640)).unwrap();

    // A stage is repeated if its pod is restarted.
    for _ in 0..2 {
        let finished = volume.succeeds(&engine, &SECOND);
        assert!(finished.stderr.contains("New phase: MergeDelta"), "{}", finished.stderr);
        disk::assert_same(&volume.disk(), &delta.raw, 8 * MIB, "the second stage");
        let metadata = volume.disk().metadata().unwrap();
        assert_eq!((metadata.len(), metadata.permissions().mode() & 0o7777), (9 * MIB, 0o640));
    }
    let formats: Vec<_> = engine.transfers().into_iter().map(|t| (t.format, t.subject)).collect();
    let expected = [("raw", "first"), ("cow", "second"), ("cow", "second")];
    assert_eq!(formats, expected.map(|(format, subject)| (format.to_owned(), subject.to_owned())));
    assert_ended(&engine, "finished_success");
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_delta_to_another_checkpoint_is_refused_and_the_disk_stays() {
    let volume = Volume::new();
    let (delta, engine) = warm(&volume.place);
    volume.succeeds(&engine, &FIRST);
    let before = read(&volume.disk());
    let other =
        [("IMPORTER_CURRENT_CHECKPOINT", "second"), ("IMPORTER_PREVIOUS_CHECKPOINT", "zeroth")];
    volume.fails(
        &engine,
        &other,
        "Unable to process data: Unable to apply delta to base image: snapshot backing file 'first' does not match \
         expected checkpoint 'zeroth', unable to safely rebase snapshot",
    );
    assert!(read(&volume.disk()) == before, "the disk was touched");
    assert_ended(&engine, "finished_success");
    drop(delta);
}

#[test]
fn connection_failures_are_reported_as_such() {
    let volume = Volume::new();
    let engine = Engine::start(raw_disk(sparse(1)));
    for (env, reason) in [
        (("IMPORTER_SECRET_KEY", "wrong"), "Cannot authenticate user"),
        (("IMPORTER_DISK_ID", "unknown"), "Entity not found"),
        (("IMPORTER_CURRENT_CHECKPOINT", "unknown"), "has no snapshot unknown"),
        (("IMPORTER_ENDPOINT", "http://127.0.0.1:1/ovirt-engine/api"), "refused"),
    ] {
        let (finished, message) = volume.run(&engine, &[env]);
        let message = message.unwrap_or_default();
        assert!(
            finished.code() == 1
                && message.starts_with("Unable to connect to imageio data source: ")
                && message.contains(reason),
            "{message}\n{}",
            finished.stderr
        );
        assert!(!volume.disk().exists());
    }
}

#[test]
fn an_archive_cannot_be_imported_from_an_engine() {
    let volume = Volume::new();
    let engine = Engine::start(raw_disk(sparse(1)));
    let (finished, _) = volume.run(&engine, &[("IMPORTER_CONTENTTYPE", "archive")]);
    assert_eq!(finished.code(), 1, "{}", finished.stderr);
    assert!(engine.calls().is_empty(), "{:?}", engine.calls());
    assert!(
        finished.stderr.contains("Unsupported content type archive when importing from imageio")
    );
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_delta_without_a_first_stage_is_an_error() {
    let volume = Volume::new();
    let (_delta, engine) = warm(&volume.place);
    let disk = volume.disk();
    let wanted = format!(
        "Unable to process data: Unable to apply delta to base image: unable to write to file: open {}: no such file or \
         directory",
        disk.display()
    );
    volume.fails(&engine, &SECOND, &wanted);
    assert!(!disk.exists());
}
