//! VMware disks without VMware's library: a scripted vSphere that gives tickets, and a stand-in for
//! the ESXi host that has the disk.

use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use testkit::certs::{Authority, KeyKind};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::Program;
use testkit::vsphere::host::{EsxiHost, FrameMaker, HostHabits, frame};
use testkit::vsphere::tracked::{BLOCK_BYTES, Checkpoint, DISK, Tracked, UUID, file_of};

use crate::place::{MIB, Place, SOURCE_FAILED, USAGE};
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
fn a_machine_and_its_disk_are_named_in_several_ways() {
    let content = content();
    let scene = Scene::new(&content);
    let of_state = |address: &str| {
        let user = scene.place.as_user("user", PASSWORD);
        scene.program_at("import", address, None, None).args(user).arg(scene.place.target())
    };
    let states = scene.states.each_ref().map(|(_, raw)| std::fs::read(raw).or_fail("a state"));
    for (address, state) in [
        ("vm-1/0", 1),
        ("guest%20%2F%20one/Hard disk 1", 1),
        ("guest %252f one/[ds] guest/disk.vmdk", 1),
        (&format!("{UUID}/%5Bds%5D%20guest%2Fdisk.vmdk?snapshot=checkpoint 1"), 0),
        ("vm-1/0?snapshot=snapshot-1", 0),
    ] {
        let finished = scene.place.assert_imports(of_state(address), &states[state], address);
        scene.assert_discreet(&finished.stderr);
    }
    for (address, sentence) in [
        (
            "vm-4/0",
            "no machine \"vm-4\": there are guest %2f one (vm-1), other (vm-2), other (vm-3)",
        ),
        (
            "other/0",
            "2 machines called \"other\", use the id of one: there are other (vm-2), other (vm-3)",
        ),
        (
            "vm-1/1",
            "no disk \"1\" in the machine vm-1 or its snapshots: there are 0 (Hard disk 1, [ds] guest/disk.vmdk)",
        ),
        ("vm-1/0?snapshot=x", "there are checkpoint 2 (snapshot-2), checkpoint 1 (snapshot-1)"),
    ] {
        scene.place.assert_refused(of_state(address), SOURCE_FAILED, sentence);
    }
}

#[test]
fn info_lists_machines_and_disks_and_tries_each_step_to_the_first_disk() {
    let scene = Scene::new(&content());
    let info = |address: &str, options: &[&str]| {
        let program = scene.program_at("info", address, None, None).args(options);
        let finished = program.args(scene.place.as_user("user", PASSWORD)).run();
        finished.assert_success(address);
        scene.assert_discreet(&format!("{}{}", finished.stdout, finished.stderr));
        finished.stdout
    };
    let json = |address: &str| -> serde_json::Value {
        let text = info(address, &["--json", "--transport", "nfc"]);
        serde_json::from_str(&text).or_fail(&text)
    };
    let machines = json("");
    assert_eq!(machines["vmware"]["machines"][2]["id"], "vm-3", "{machines}");
    assert_eq!(machines["vmware"]["machines"][0]["uuid"], UUID, "{machines}");
    assert!(machines["format"].is_null(), "{machines}");
    assert!(
        info("", &[]).contains("\nmachines           3\nmachine            guest %2f one (vm-1)\n")
    );

    let machine = &json("vm-1")["vmware"]["machine"];
    assert_eq!(machine["disks"][0]["capacity"], 8 * MIB, "{machine}");
    assert_eq!(machine["snapshots"][1]["id"], "snapshot-1", "{machine}");
    let steps = machine["steps"].as_array().or_fail("steps");
    let failed: Vec<_> = steps.iter().filter(|step| step["works"] == false).collect();
    assert!(failed.len() == 1 && failed[0]["step"] == "vddk", "{machine}");

    let port = scene.host.port();
    let text = info("guest %252f one?snapshot=checkpoint 1", &[]);
    for line in [
        "change tracking    on",
        "disk 0             Hard disk 1\n  file             [ds] guest/disk.vmdk\n  capacity         8.00 MiB (8388608 bytes)",
        "vddk               fails: VMware's library is not in ",
        "nfc                works: version 11: ",
        &format!("ticket             works: vSphere gives one for port {port} of 127.0.0.1"),
        &format!("port               works: TCP to port {port} of 127.0.0.1 is open"),
        "greeting           works: 220 VMware Authentication Daemon Version 1.10: SSL Required, ",
        "capabilities       works: ",
        "certificate        works: it matches the thumbprint of the ticket: sha256:",
        "service            works: vpxa-nfcssl accepts the ticket",
        "open               works: [ds] guest/disk-snapshot-1.vmdk has 8388608 bytes, as vSphere says",
        "used areas         works: the host lists them",
    ] {
        assert!(text.contains(&format!("\n{line}")), "{line}: {text}");
    }
}

#[test]
fn info_names_the_step_that_fails() {
    let scene = Scene::new(&content());
    let wrong = "00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33".to_owned();
    let old = || testkit::vsphere::tracked::fault("InvalidRequest", "Invalid request");
    let changes: [(&str, HabitChange<'_>); 5] = [
        (
            "used areas         works: the host does not list them, vSphere does: error 5: not here",
            &|habits| {
                habits.instead = Some((13, |operation| refused(13, operation, 48)));
            },
        ),
        ("open               fails: ", &|habits| habits.grown = 512),
        ("service            fails: ", &|habits| habits.refused_tickets = 1),
        ("certificate        fails: ", &|habits| habits.thumbprint = Some(wrong.clone())),
        ("capabilities       fails: ", &|habits| habits.has_sha256 = false),
    ];
    let assert_shows = |line: &str| {
        let program = scene.program_at("info", "vm-1", None, None).args(["--transport", "nfc"]);
        let finished = program.args(scene.place.as_user("user", PASSWORD)).run();
        finished.assert_success(line);
        assert!(finished.stdout.contains(&format!("\n{line}")), "{line}: {}", finished.stdout);
        scene.assert_discreet(&format!("{}{}", finished.stdout, finished.stderr));
    };
    for (line, change) in changes {
        scene.host.habits(change);
        assert_shows(line);
    }
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
    scene.vsphere.use_host(&scene.host, closed.or_fail("a port").port());
    scene.vsphere.habits(|habits| habits.instead = vec![("NfcGetServerNfcLibVersion", old())]);
    assert_shows("port               fails: ");
    assert_shows("nfc                works: the host does not tell it");
    scene.vsphere.habits(|habits| habits.instead = vec![("NfcGetVmFiles", no_permission())]);
    assert_shows("ticket             fails: ");
}

#[test]
fn a_user_in_the_address_needs_a_password_file() {
    let content = content();
    let scene = Scene::new(&content);
    let server = scene.vsphere.url();
    let import = |user: &str, options: &[String]| {
        let address =
            format!("vmware+{}/vm-1/0", server.replacen("://", &format!("://{user}@"), 1));
        Program::new(crate::BINARY)
            .env("CDI_WORKERS_TEST_ROOT", scene.place.path(""))
            .args(["import", &address])
            .args(options)
            .args(scene.place.trusting(&scene.authority))
            .arg(scene.place.target())
    };
    let login = scene.place.as_user("user", PASSWORD);
    let state = std::fs::read(&scene.states[1].1).or_fail("a state");
    scene.place.assert_imports(import("user", &login[2..]), &state, "a user in the address");
    for (user, options, sentence) in [
        ("user", &login[..0], "give --user and --password-file"),
        ("user", &login[..], "the address names a user, and so does --user"),
        ("user:secret", &login[2..], "the address contains a password"),
    ] {
        let finished = scene.place.assert_refused(import(user, options), USAGE, sentence);
        scene.assert_discreet(&finished.stderr);
    }
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

#[test]
fn hosts_that_are_not_the_right_one_get_no_data_from_us() {
    let scene = Scene::new(&content());
    let other = "AA:".repeat(19) + "AA";
    let second = scene.authority.server_config().or_fail("TLS");
    let cases: [(&str, HabitChange<'_>); 5] = [
        ("the first TLS session: ", &|habits| habits.thumbprint = Some(other.clone())),
        ("the host announces another certificate than it has", &|habits| {
            habits.announced = Some("AB:".repeat(31) + "AB");
        }),
        (
            "the second TLS session: unexpected error: the server's certificate does not have the thumbprint sha256:",
            &|habits| {
                habits.second = Some(Arc::clone(&second));
            },
        ),
        ("the host is older than ESXi 7.0.3", &|habits| habits.has_sha256 = false),
        ("8388608 bytes according to vSphere and 8389120 according to the ESXi host", &|habits| {
            habits.grown = 512;
        }),
    ];
    let mut usual = None;
    for (sentence, change) in cases {
        scene.host.habits(|habits| {
            let usual = usual.get_or_insert_with(|| habits.clone());
            *habits = usual.clone();
            change(habits);
        });
        // Without an option, failures that may pass would be retried for a minute.
        scene.assert_refused(&[], sentence);
    }
    // The same without verification of vSphere, for a host of which it names no thumbprint.
    scene.host.habits(|habits| {
        *habits = usual.unwrap_or_else(|| habits.clone());
        habits.thumbprint = Some(String::new());
    });
    let address = format!("vmware+{}/?vm={UUID}&disk={DISK}", scene.vsphere.url());
    let program = Program::new(crate::BINARY)
        .args(["import", &address, "--insecure", "--transport", "nfc"])
        .args(scene.place.as_user("user", PASSWORD))
        .arg(scene.place.target());
    scene.place.assert_refused(program, SOURCE_FAILED, "vSphere does not name its certificate");
    // Neither this one nor a host with the wrong thumbprint nor one that is too old was given a
    // ticket.
    assert_eq!(scene.host.secrets().len(), 3);
    assert_eq!(scene.host.served().1, 0);
}

#[test]
fn whatever_is_closed_or_not_allowed_is_named() {
    let scene = Scene::new(&content());
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
    let closed = closed.or_fail("a port").port();
    scene.vsphere.use_host(&scene.host, closed);
    let sentence = format!(
        "127.0.0.1: ESXi host 127.0.0.1, port {closed}: cannot connect to it: connection refused; this machine needs TCP to port {closed}"
    );
    scene.assert_refused(&["--retries", "0"], &sentence);
    scene.vsphere.use_host(&scene.host, scene.host.port());
    scene.host.habits(|habits| habits.refused_tickets = 1);
    let refused = "the host refuses the ticket: \"530 Please login with USER and PASS.\"";
    scene.assert_refused(&["--retries", "0"], refused);
    let program = scene.program("import", None, None).arg(scene.place.target());
    scene.host.add_disk(DISK, &PathBuf::from("/nowhere"));
    scene.vsphere.habits(|habits| habits.instead = vec![("NfcGetVmFiles", no_permission())]);
    let privilege = "VirtualMachine.Provisioning.GetVmFiles";
    scene.place.assert_refused(program, SOURCE_FAILED, privilege);
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
fn errors_of_the_host_end_an_import_unless_they_only_hide_holes() {
    let content = content();
    let scene = Scene::new(&content);
    scene.host.habits(|habits| {
        habits.instead = Some((13, |operation| refused(13, operation, 48)));
    });
    let unknown = ("QueryChangedDiskAreas", no_permission());
    for (is_tracking, instead, expected, words) in [
        (true, vec![], used_bytes(&content), "vSphere lists "),
        (true, vec![unknown], 8 * MIB, "vSphere does not list the used areas: "),
        (false, vec![], 8 * MIB, "vSphere does not list the used areas: changes are not tracked"),
    ] {
        scene.vsphere.habits(|habits| {
            habits.is_tracking = is_tracking;
            habits.instead = instead;
        });
        let before = scene.host.served().1;
        let finished = scene.place.assert_imports(scene.import().arg("-v"), &content, words);
        assert!(finished.stderr.contains(words), "{}", finished.stderr);
        scene.assert_discreet(&finished.stderr);
        assert_eq!(scene.host.served().1 - before, expected, "{words}");
    }
    let queries = scene.vsphere.take_queries();
    assert!(queries.iter().all(|query| query.change_id == "*"), "{queries:?}");
    scene.host.habits(|habits| {
        habits.instead = Some((7, |operation| refused(7, operation, 44)));
    });
    let sentence = "at offset 0 with error 5: not here (127.0.0.1: ESXi host 127.0.0.1, port ";
    scene.assert_refused(&["--retries", "0"], sentence);
}

/// The payload of a fragment of the first read, whose numbers from 24 on are these.
fn fragment(operation: u32, numbers: [u32; 4], data: &[u8]) -> Vec<u8> {
    let mut payload = vec![0; 24];
    payload.extend(numbers.map(u32::to_le_bytes).concat());
    payload.extend([0; 4]);
    frame(7, operation, &payload, data)
}

#[test]
fn hostile_lengths_end_the_import() {
    let scene = Scene::new(&disk::content(9, 8 * MIB));
    const READ: u32 = 1 << 20;
    let cases: [(u32, FrameMaker, &str); 9] = [
        (4, |operation| frame(4, operation, &[0; 59], &[]), "a payload of 59 bytes, expected 60"),
        (4, |operation| frame(4, operation + 1, &[0; 60], &[]), "a reply to operation 4"),
        (4, |_| vec![7; 100], "a frame begins with 0x07070707"),
        (
            4,
            |operation| frame(1, operation, &[255; 16], &[]),
            "an error with a text of 4294967295 bytes",
        ),
        (
            13,
            |operation| frame(13, operation, &[255; 48], &[]),
            "it describes 18446744073709551615 chunks",
        ),
        (
            7,
            |operation| fragment(operation, [READ, 0, READ + 1, READ + 1], &[]),
            "answers a read of bytes 0 to",
        ),
        (
            7,
            |operation| fragment(operation, [READ, u32::MAX, 512, 512], &[]),
            "answers a read of bytes 0 to",
        ),
        (
            7,
            |operation| {
                let one = fragment(operation, [READ, 0, 512, 512], &[0; 512]);
                [one.clone(), one].concat()
            },
            "arrive twice",
        ),
        (7, |operation| fragment(operation + 99, [READ, 0, 512, 512], &[]), "which is not open"),
    ];
    for (kind, instead, sentence) in cases {
        scene.host.habits(|habits| habits.instead = Some((kind, instead)));
        scene.assert_refused(&[], sentence);
    }
}
