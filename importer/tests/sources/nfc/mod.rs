//! VMware disks without VMware's library: a scripted vSphere that gives tickets, and a stand-in for
//! the ESXi host that has the disk.

mod hostile;
mod names;

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use testkit::certs::{Authority, KeyKind};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::Program;
use testkit::vsphere::host::{EsxiHost, HostHabits, frame};
use testkit::vsphere::tracked::{BLOCK_BYTES, Checkpoint, DISK, Tracked, UUID, file_of};

use crate::place::{MIB, Place, SOURCE_FAILED};
use crate::pod::Pod;

/// The password at vSphere, which no output may show.
pub(crate) const PASSWORD: &str = "secret";

/// A change of a host.
type HabitChange<'a> = &'a dyn Fn(&mut HostHabits);

/// A vSphere, a host, and a disk in two states.
struct Scene {
    place: Place,
    authority: Authority,
    vsphere: Tracked,
    host: EsxiHost,
    states: [(Checkpoint, PathBuf); 2],
}

impl Scene {
    /// Creates the scene with a disk of this content. Two areas differ between the states.
    fn new(content: &[u8]) -> Self {
        let (place, authority) = (Place::new(), Authority::new().or_fail("an authority"));
        let [first, second] =
            ["first", "second"].map(|name| PathBuf::from(place.write(name, content)));
        let file = std::fs::File::options().write(true).open(&second).or_fail("a state");
        for area in [3, 50] {
            file.write_all_at(&vec![7; 9000], area * BLOCK_BYTES).or_fail("a state");
        }
        let vsphere = Tracked::start_tls(authority.server_config().or_fail("TLS"));
        let host = EsxiHost::start(&authority.server(KeyKind::Ecdsa).or_fail("a certificate"));
        vsphere.use_host(&host, host.port());
        let states = [first, second].map(|raw| (vsphere.checkpoint(&raw), raw));
        for (state, raw) in &states {
            host.add_disk(&file_of(&state.object), raw);
        }
        host.add_disk(DISK, &states[1].1);
        Self { place, authority, vsphere, host, states }
    }

    /// `cdi-importer COMMAND` for the state `current`, or for what changed since `previous`.
    fn program(&self, command: &str, current: Option<usize>, previous: Option<usize>) -> Program {
        let address = format!("?vm={UUID}&disk={DISK}");
        let user = self.place.as_user("user", PASSWORD);
        self.program_at(command, &address, current, previous).args(user)
    }

    /// Like [`program`](Self::program), for this address on the server, and without a login.
    fn program_at(
        &self,
        command: &str,
        address: &str,
        current: Option<usize>,
        previous: Option<usize>,
    ) -> Program {
        let address = format!("vmware+{}/{address}", self.vsphere.url());
        let name = |state: usize| self.states[state].0.name.clone();
        let current = current.map(|state| ["--checkpoint".to_owned(), name(state)]);
        let previous = previous.map(|state| ["--previous-checkpoint".to_owned(), name(state)]);
        Program::new(crate::BINARY)
            .env("CDI_WORKERS_TEST_ROOT", self.place.path(""))
            .args([command, &address])
            .args(self.place.trusting(&self.authority))
            .args(current.into_iter().chain(previous).flatten())
    }

    /// An import of the first state.
    fn import(&self) -> Program {
        self.program("import", Some(0), None).args(["--transport", "nfc"]).arg(self.place.target())
    }

    #[track_caller]
    fn assert_imports(&self, content: &[u8], case: &str) {
        let finished = self.place.assert_imports(self.import(), content, case);
        self.assert_discreet(&finished.stderr);
    }

    /// A pod that imports the disk, and trusts the authority.
    fn pod(&self) -> Pod {
        let mut pod = pod_of(&self.vsphere);
        let certificates = pod.path("certs");
        std::fs::create_dir(&certificates).or_fail("a folder");
        std::fs::write(certificates.join("ca.crt"), self.authority.pem()).or_fail("an authority");
        pod.set("IMPORTER_CERT_DIR", certificates.display());
        pod
    }

    /// Asserts that the import fails with this sentence.
    #[track_caller]
    fn assert_refused(&self, options: &[&str], sentence: &str) {
        let program = self.import().args(options);
        let finished = self.place.assert_refused(program, SOURCE_FAILED, sentence);
        self.assert_discreet(&finished.stderr);
    }

    /// Asserts that the client kept to the protocol, and that its words contain no secret.
    #[track_caller]
    fn assert_discreet(&self, words: &str) {
        assert_eq!(self.host.mistakes(), Vec::<String>::new());
        assert!(!words.contains(PASSWORD) && !words.contains("secret-of-ticket"), "{words}");
    }
}

/// A pod that imports the disk of a vSphere.
pub(crate) fn pod_of(vsphere: &Tracked) -> Pod {
    Pod::new(&[
        ("IMPORTER_SOURCE", "vddk"),
        ("IMPORTER_ENDPOINT", &vsphere.url()),
        ("IMPORTER_UUID", UUID),
        ("IMPORTER_BACKING_FILE", DISK),
        ("IMPORTER_ACCESS_KEY_ID", "user"),
        ("IMPORTER_SECRET_KEY", PASSWORD),
        ("IMPORTER_IMAGE_SIZE", "8Mi"),
        ("FILESYSTEM_OVERHEAD", "0"),
    ])
}

/// A disk of 8 MiB, most of which are holes.
fn content() -> Vec<u8> {
    disk::sparse_content(5, 8 * MIB, 8)
}

/// Number of bytes in blocks with data.
fn used_bytes(content: &[u8]) -> u64 {
    let block = usize::try_from(BLOCK_BYTES).or_fail("a block");
    let used = content.chunks(block).filter(|block| block.iter().any(|byte| *byte != 0));
    used.count() as u64 * BLOCK_BYTES
}

fn no_permission() -> testkit::adversary::Reply {
    testkit::vsphere::tracked::fault(
        "NoPermission",
        "Permission to perform this operation was denied.",
    )
}

/// An error of the host, and the reply of zeros that may follow it.
fn refused(kind: u32, operation: u32, size: usize) -> Vec<u8> {
    let error = [5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0];
    let reply = frame(kind, operation, &vec![0; size], &[]);
    [frame(1, operation, &error, b"not here"), reply].concat()
}

#[test]
fn a_whole_disk_is_imported_without_its_holes_and_then_its_changes_are_applied() {
    let content = content();
    let scene = Scene::new(&content);
    scene.host.habits(|habits| {
        habits.is_shuffling = true;
        habits.compressions = vec![0, 1, 3];
    });
    let target = scene.place.target();
    scene.import().args(["--connections", "4"]).run().assert_success("a whole disk");
    disk::assert_same(&target, &scene.states[0].1, 8 * MIB, "the first state");
    let (connections, whole) = scene.host.served();
    assert_eq!((connections, whole), (4, used_bytes(&content)));

    let info = scene.program("info", Some(1), Some(0)).arg("--json").run();
    info.assert_success("what changed");
    assert!(info.stdout.contains("\"areas\": 2"), "{}", info.stdout);
    // Neither VMware's library nor a plugin for tests is installed.
    let finished = scene.program("apply", Some(1), Some(0)).arg(&target).run();
    finished.assert_success("what changed");
    disk::assert_same(&target, &scene.states[1].1, 8 * MIB, "the second state");
    let (connections, all) = scene.host.served();
    assert_eq!((connections, all - whole), (6, 2 * BLOCK_BYTES));
    scene.assert_discreet(&finished.stderr);
}

#[test]
fn a_stopped_machine_of_a_host_without_vcenter_is_imported() {
    // The end is not described by the host, because it is less than a chunk.
    let content = [content(), vec![7; 1536]].concat();
    let scene = Scene::new(&content);
    scene.host.habits(|habits| habits.is_managed = false);
    scene.vsphere.habits(|habits| habits.is_host = true);
    let target = scene.place.target();
    let finished = scene.program("import", None, None).arg(&target).run();
    finished.assert_success("a stopped machine");
    disk::assert_same(&target, &scene.states[1].1, content.len() as u64, "the disk");
    scene.assert_discreet(&finished.stderr);
}

#[test]
fn a_pod_without_vmwares_library_takes_a_disk_and_its_changes_from_the_host() {
    let content = content();
    let scene = Scene::new(&content);
    let mut pod = scene.pod();
    for (current, previous) in [(0, None), (1, Some(0))] {
        let name = |state: usize| &scene.states[state].0.name;
        pod.set("IMPORTER_CURRENT_CHECKPOINT", name(current));
        pod.set("IMPORTER_PREVIOUS_CHECKPOINT", previous.map_or("", |state| name(state)));
        pod.set("IMPORTER_FINAL_CHECKPOINT", current == 1);
        let finished = pod.run();
        let message = pod.message().unwrap_or_default();
        assert_eq!(finished.code(), 0, "{message} {}", finished.stderr);
        // CDI shows the host in an annotation.
        assert!(message.contains(r#""vddkInfo":{"Version":"","Host":"127.0.0.1"}"#), "{message}");
        disk::assert_same(&pod.disk(), &scene.states[current].1, 8 * MIB, "a stage");
        scene.assert_discreet(&finished.stderr);
    }
    assert_eq!(scene.host.served().1, used_bytes(&content) + 2 * BLOCK_BYTES);
}

#[test]
fn a_pod_reads_its_disk_as_its_data_volume_says() {
    let scene = Scene::new(&content());
    let mut pod = scene.pod();
    let options = pod.path("vddk-args");
    std::fs::create_dir(&options).or_fail("a folder");
    let lines = "VixDiskLib.nfcAio.Session.BufCount=4\ntransport = nfc-zlib\n";
    std::fs::write(options.join("vddk-config-file"), lines).or_fail("options");
    for (header, wanted, is_clear) in
        [("Accept: text/plain", 1, false), ("X-CDI-Workers-Transport: nfc-clear", 3, true)]
    {
        scene.host.habits(|habits| {
            (habits.wanted, habits.is_clear) = (wanted, is_clear);
            habits.compressions = vec![wanted.into()];
        });
        pod.set("IMPORTER_EXTRA_HEADER_0", header);
        let finished = pod.run();
        assert_eq!(finished.code(), 0, "{header}: {:?} {}", pod.message(), finished.stderr);
        disk::assert_same(&pod.disk(), &scene.states[1].1, 8 * MIB, header);
        scene.assert_discreet(&finished.stderr);
    }
    pod.set("IMPORTER_EXTRA_HEADER_0", "X-CDI-Workers-Transport: fax");
    assert_eq!(pod.run().code(), 1);
    let message = pod.message().unwrap_or_default();
    assert!(message.contains(r#""fax" is not a transport: use auto, nfc, nfc-zlib"#), "{message}");
}

#[test]
fn what_cut_connections_have_brought_is_not_read_again() {
    const DISK_BYTES: u64 = 3 << 30;
    let scene = Scene::new(&[0; 512]);
    let raw = scene.place.path("large");
    let file = std::fs::File::create(&raw).or_fail("a disk");
    file.set_len(DISK_BYTES).or_fail("a disk");
    for area in 0..64 {
        file.write_all_at(&vec![area + 1; 4 << 20], u64::from(area) * (47 << 20)).or_fail("a disk");
    }
    scene.host.add_disk(&file_of(&scene.states[0].0.object), &raw);
    scene.vsphere.habits(|habits| habits.capacity = Some(DISK_BYTES));
    scene.host.habits(|habits| {
        habits.is_shuffling = true;
        habits.cuts = (0..30).map(|cut| 4_000_000 + 50_001 * cut).collect();
    });
    let target = scene.place.target();
    let finished = scene.import().args(["--connections", "4"]).run();
    finished.assert_success("cut connections");
    disk::assert_same(&target, &raw, DISK_BYTES, "cut connections");
    scene.assert_discreet(&finished.stderr);
    let (connections, sent) = scene.host.served();
    let used = 64 * (4 << 20);
    assert_eq!((connections, sent / used), (34, 1));
    assert!(sent - used < used / 100, "{} bytes were received twice", sent - used);
}

#[test]
fn a_host_that_refuses_further_connections_is_read_over_fewer() {
    let content = content();
    let scene = Scene::new(&content);
    scene.host.habits(|habits| habits.most_connections = 2);
    let program = scene.import().args(["--connections", "4"]);
    let finished = scene.place.assert_imports(program, &content, "two connections");
    let words = "the disk is read over 2 of 4 connections: ";
    assert!(finished.stderr.contains(words), "{}", finished.stderr);
    assert_eq!(scene.host.served(), (2, used_bytes(&content)));
    scene.assert_discreet(&finished.stderr);
}

#[test]
fn a_machine_that_moves_to_another_host_is_followed() {
    let content = disk::content(9, 8 * MIB);
    let scene = Scene::new(&content);
    let other = EsxiHost::start(&scene.authority.server(KeyKind::Ecdsa).or_fail("a certificate"));
    other.add_disk(&file_of(&scene.states[0].0.object), &scene.states[0].1);
    scene.vsphere.move_to(&other);
    scene.host.habits(|habits| habits.cuts = [3_000_000].into());
    scene.assert_imports(&content, "another host");
    assert_eq!((scene.host.served().0, other.served().0), (1, 1));
    assert_eq!(other.mistakes(), Vec::<String>::new());
}

#[test]
fn a_silent_host_is_asked_again() {
    let content = content();
    let scene = Scene::new(&content);
    scene.host.habits(|habits| {
        habits.cuts = [500_000].into();
        habits.is_silent = true;
    });
    let program = scene.import().args(["--no-progress-timeout", "6s"]);
    scene.place.assert_imports(program, &content, "a silent host");
    assert_eq!(scene.host.served().0, 2);
}

#[test]
fn a_used_ticket_a_broken_handshake_and_an_expired_session_are_repeated() {
    let content = content();
    let scene = Scene::new(&content);
    scene.host.habits(|habits| (habits.refused_tickets, habits.hang_ups) = (1, 1));
    scene.vsphere.habits(|habits| habits.expires_in = Some("NfcGetVmFiles"));
    scene.assert_imports(&content, "a refused ticket");
    assert_eq!(scene.host.served().0, 1);
    // To find the disk, for tickets, again for tickets, and to check the snapshot.
    assert_eq!(scene.vsphere.logins(), 4);
}
