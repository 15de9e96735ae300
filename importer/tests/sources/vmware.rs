//! VMware disks on the command line: a scripted vSphere that tracks changes, with a stand-in for
//! nbdkit, and VMware's simulator of vSphere, with nbdkit and a stand-in for VMware's library.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use testkit::certs::Authority;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::Program;
use testkit::vsphere::tracked::{BLOCK_BYTES, Checkpoint, DISK, Tracked, UUID};
use testkit::vsphere::{TEST_PLUGIN, Vsphere, bring_library, bring_stand_in};

use crate::place::{MIB, Place, SOURCE_FAILED, USAGE};

/// The password at each vSphere, which no output may show.
const PASSWORD: &str = "secret";

/// `cdi-importer COMMAND` for an address, on a machine whose `/opt` is below the place.
fn importer(place: &Place, command: &str, address: &str) -> Program {
    Program::new(crate::BINARY)
        .env("CDI_WORKERS_TEST_ROOT", place.path(""))
        .args([command, address])
        .args(place.as_user("user", PASSWORD))
}

/// A vSphere, a disk in two states, and a machine with a stand-in for nbdkit.
struct Scene {
    place: Place,
    authority: Authority,
    vsphere: Tracked,
    states: [(Checkpoint, PathBuf); 2],
    path: String,
}

impl Scene {
    /// Creates the scene. Two areas of the disk differ between the states.
    fn new() -> Self {
        let (place, authority) = (Place::new(), Authority::new().or_fail("an authority"));
        // A guest may write anything: this looks like a qcow2 image, but is not one.
        let mut content = disk::content(5, 8 * MIB);
        content[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
        let [first, second] =
            ["first", "second"].map(|name| PathBuf::from(place.write(name, &content)));
        let file = std::fs::File::options().write(true).open(&second).or_fail("a state");
        for area in [3, 50] {
            file.write_all_at(&vec![7; 9000], area * BLOCK_BYTES).or_fail("a state");
        }
        let vsphere = Tracked::start_tls(authority.server_config().or_fail("TLS"));
        let states = [first, second].map(|raw| (vsphere.checkpoint(&raw), raw));
        let lines =
            states.iter().map(|(state, raw)| format!("disk.{}={}\n", state.object, raw.display()));
        let path = bring_stand_in(&place.path(""), &lines.collect::<String>());
        Self { place, authority, vsphere, states, path }
    }

    /// `cdi-importer COMMAND` for the state `current`, or for what changed since `previous`.
    fn program(&self, command: &str, current: usize, previous: Option<usize>) -> Program {
        let address = format!("vddk+{}/?vm={UUID}&disk={DISK}", self.vsphere.url());
        let program = importer(&self.place, command, &address)
            .env("PATH", &self.path)
            .args(self.place.trusting(&self.authority))
            .args(["--checkpoint", &self.states[current].0.name]);
        match previous {
            Some(previous) => {
                program.args(["--previous-checkpoint", &self.states[previous].0.change_id])
            }
            None => program,
        }
    }
}

#[test]
#[ignore = "tools: qemu-nbd"]
fn a_whole_disk_is_imported_and_then_its_changes_are_applied() {
    let scene = Scene::new();
    let target = scene.place.target();
    let finished = scene.program("import", 0, None).arg(&target).run();
    finished.assert_success("a whole disk");
    disk::assert_same(&target, &scene.states[0].1, 8 * MIB, "the first state");

    let info = scene.program("info", 1, Some(0)).arg("--json").run();
    info.assert_success("what changed");
    let json: serde_json::Value = serde_json::from_str(&info.stdout).or_fail(&info.stdout);
    assert_eq!(json["virtual_size"], 8 * MIB, "{json}");
    assert_eq!(json["changed"]["bytes"], 2 * BLOCK_BYTES, "{json}");
    assert_eq!(json["changed"]["areas"], 2, "{json}");
    assert!(json["source"].as_str().is_some_and(|name| name.ends_with("in snapshot-2")), "{json}");

    let finished = scene.program("apply", 1, Some(0)).arg(&target).run();
    finished.assert_success("what changed");
    disk::assert_same(&target, &scene.states[1].1, 8 * MIB, "the second state");
    assert!(!finished.stderr.contains(PASSWORD), "{}", finished.stderr);
}

#[test]
#[ignore = "tools: qemu-nbd"]
fn wrong_uses_are_refused_and_leave_no_target() {
    let scene = Scene::new();
    for (command, current, previous, code, sentence) in [
        ("import", 1, Some(0), SOURCE_FAILED, "apply it to the disk of the earlier checkpoint"),
        ("apply", 1, None, USAGE, "a VMware disk with --previous-checkpoint"),
        ("apply", 1, Some(0), 7, "no such file or directory"),
    ] {
        let program = scene.program(command, current, previous).arg(scene.place.target());
        let finished = scene.place.assert_refused(program, code, sentence);
        assert!(!finished.stderr.contains(PASSWORD), "{}", finished.stderr);
    }
}

/// VMware's simulator, and a machine with nbdkit and a disk that the library serves.
struct Simulated {
    place: Place,
    vsphere: Vsphere,
    disk: Vec<u8>,
}

impl Simulated {
    fn new() -> Self {
        let (place, disk) = (Place::new(), disk::sparse_content(3, 8 * MIB, 8));
        place.write("served", &disk);
        bring_library(&place.path(""), "");
        Self { place, vsphere: Vsphere::start(), disk }
    }

    /// Lets the library accept only these arguments and values.
    fn expect(&self, arguments: &[(&str, &str)]) {
        let mut config = format!("disk={}\n", self.place.path("served").display());
        config.extend(arguments.iter().map(|(name, value)| format!("{name}={value}\n")));
        self.place.write("vddk-args/vddk-config-file", config);
    }

    fn import(&self, uuid: &str, disk: &str, options: &[&str]) -> Program {
        let address = format!("vddk+{}/?vm={uuid}&disk={disk}", self.vsphere.url());
        importer(&self.place, "import", &address).arg(self.place.target()).args(options)
    }

    #[track_caller]
    fn assert_refused(&self, program: Program, sentence: &str) {
        let finished = self.place.assert_refused(program, SOURCE_FAILED, sentence);
        assert!(!finished.stderr.contains(PASSWORD), "{}", finished.stderr);
    }
}

#[test]
#[ignore = "server: vcsim"]
fn disks_of_the_simulator_are_found_by_machine_and_snapshot() {
    let scene = Simulated::new();
    let machines = scene.vsphere.machines();
    // The last machine is in the second data centre.
    for (machine, uuid, snapshot) in [
        (&machines[0], &machines[0].instance_uuid, None),
        (&machines[7], &machines[7].uuid, None),
        (&machines[1], &machines[1].uuid, Some("second")),
        (&machines[1], &machines[1].uuid, Some(machines[1].snapshot.as_str())),
    ] {
        let moref = format!("moref={}", machine.moref);
        let found = [("snapshot", &*machine.snapshot), ("transports", "file:nbdssl:nbd")];
        let basic = [
            ("server", "127.0.0.1"),
            ("user", "user"),
            ("password", PASSWORD),
            ("vm", &moref),
            ("file", &machine.disk),
        ];
        scene.expect(&[&basic[..], if snapshot.is_some() { &found[..] } else { &[] }].concat());
        let thumbprint = ["--thumbprint", scene.vsphere.thumbprint()];
        let checkpoint = snapshot.map(|snapshot| ["--checkpoint", snapshot]);
        let program = scene.import(uuid, &machine.disk, &thumbprint);
        let program = program.args(checkpoint.into_iter().flatten());
        let finished = scene.place.assert_imports(program, &scene.disk, uuid);
        assert!(!finished.stderr.contains(PASSWORD), "{}", finished.stderr);
    }
}

#[test]
#[ignore = "server: vcsim"]
fn machines_of_the_simulator_are_found_by_name_path_and_object() {
    let scene = Simulated::new();
    for machine in [&scene.vsphere.machines()[0], &scene.vsphere.machines()[7]] {
        let moref = format!("moref={}", machine.moref);
        scene.expect(&[("vm", &moref), ("file", &machine.disk)]);
        let folder = machine.disk.split_once("] ").or_fail("a folder").1;
        let name = folder.split('/').next().or_fail("a name");
        let centre = name.split('_').next().or_fail("a data centre");
        let path = format!("{centre}%2Fvm%2F{name}");
        for (name, disk) in [(name, &*machine.disk), (&*path, "0"), (&*machine.moref, "0")] {
            let address = format!("vmware+{}/{name}/{disk}", scene.vsphere.url());
            let program = importer(&scene.place, "import", &address)
                .arg(scene.place.target())
                .args(["--thumbprint", scene.vsphere.thumbprint()]);
            scene.place.assert_imports(program, &scene.disk, name);
        }
    }
}

#[test]
#[ignore = "server: vcsim"]
fn info_lists_the_machines_of_the_simulator() {
    let scene = Simulated::new();
    let info = |address: &str| {
        let address = format!("vmware+{}/{address}", scene.vsphere.url());
        let program = importer(&scene.place, "info", &address).arg("--json");
        let finished = program.args(["--thumbprint", scene.vsphere.thumbprint()]).run();
        finished.assert_success("info");
        serde_json::from_str::<serde_json::Value>(&finished.stdout).or_fail(&finished.stdout)
    };
    let all = info("");
    let listed = all["vmware"]["machines"].as_array().or_fail("machines");
    let [first, ..] = scene.vsphere.machines() else { panic!("no machine") };
    assert_eq!(listed.len(), scene.vsphere.machines().len(), "{all}");
    assert!(
        listed.iter().any(|one| one["id"] == first.moref && one["uuid"] == first.instance_uuid)
    );
    let one = info(&first.moref);
    let machine = &one["vmware"]["machine"];
    assert_eq!(machine["disks"][0]["file"], first.disk, "{one}");
    assert_eq!(machine["snapshots"][1]["id"], first.snapshot, "{one}");
    // The simulator gives no tickets.
    let last = machine["steps"].as_array().and_then(|steps| steps.last()).or_fail("steps");
    assert!(last["step"] == "ticket" && last["works"] == false, "{one}");
}

#[test]
#[ignore = "server: vcsim"]
fn whatever_is_missing_is_named() {
    let scene = Simulated::new();
    let machine = &scene.vsphere.machines()[2];
    scene.expect(&[]);
    let known = ["--thumbprint", scene.vsphere.thumbprint()];
    let with = |options: &[&str]| {
        let options = [&known[..], options].concat();
        scene.import(&machine.uuid, &machine.disk, &options)
    };
    let nobody = "00000000-0000-0000-0000-000000000000";
    let other = "00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33";
    let elsewhere = format!("vddk+{}/nothing/?vm=1&disk=[d] a.vmdk", scene.vsphere.url());
    let elsewhere = importer(&scene.place, "import", &elsewhere).arg(scene.place.target());
    for (program, sentence) in [
        (scene.import(nobody, &machine.disk, &known), "vSphere has no machine with uuid 00000000"),
        (
            scene.import(&machine.uuid, "[none] <%26>.vmdk", &known),
            "vSphere has no disk \"[none] <&>.vmdk\" in the machine",
        ),
        (scene.import(&machine.uuid, &machine.disk, &[]), "certificate"),
        (
            scene.import(&machine.uuid, &machine.disk, &["--thumbprint", other]),
            "does not have the thumbprint sha1:00112233",
        ),
        (elsewhere.args(known), "without SOAP: is this its URL?"),
        (with(&["--checkpoint", "third"]), "vSphere has no snapshot \"third\""),
        (
            with(&["--checkpoint", "second", "--previous-checkpoint", "zeroth"]),
            "vSphere has no snapshot \"zeroth\"",
        ),
        (
            with(&["--checkpoint", "second", "--previous-checkpoint", "52 de-61/1"]),
            "did not track what changed",
        ),
    ] {
        scene.assert_refused(program, sentence);
    }

    let stranger = with(&[]);
    scene.place.write("password", "guessed");
    scene.assert_refused(stranger, "vSphere refuses Login: Login failure");
    scene.expect(&[("server", "elsewhere")]);
    scene.assert_refused(with(&[]), "the argument server is not what it should be");
    scene.expect(&[]);
    std::fs::remove_file(scene.place.path("served")).or_fail("the disk");
    scene.assert_refused(with(&[]), "VixDiskLib_Open: no disk");
    let nothing = with(&[]).env("PATH", "/nowhere");
    scene.assert_refused(nothing, "cannot start nbdkit: no such file or directory");
    // The plugin for tests needs no library, but nbdkit's own does.
    std::fs::remove_file(scene.place.path(TEST_PLUGIN)).or_fail("the plugin");
    scene.assert_refused(with(&["--transport", "vddk"]), "the VDDK library is missing: ");
    let library = scene.place.path("opt/vmware-vix-disklib-distrib/lib64");
    std::fs::create_dir_all(library).or_fail("a folder");
    scene.assert_refused(with(&[]), "cannot open plugin 'vddk'");
}
