//! VMware disks on the command line: VMware's simulator of vSphere, a scripted vSphere that
//! tracks changes, and nbdkit with a stand-in for VMware's library.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use testkit::certs::Authority;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::Program;
use testkit::vsphere::tracked::{BLOCK_BYTES, Checkpoint, DISK, Tracked, UUID};
use testkit::vsphere::{Vsphere, bring_library};

const MIB: u64 = 1 << 20;

/// A vSphere, a disk in two states, and a machine with nbdkit and the library.
struct Scene {
    folder: TempDir,
    vsphere: Tracked,
    states: [(Checkpoint, PathBuf); 2],
}

impl Scene {
    /// Creates the scene. Two areas of the disk differ between the states.
    fn new() -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        let authority = Authority::new().or_fail("an authority");
        std::fs::create_dir(folder.path().join("certs")).or_fail("a folder");
        std::fs::write(folder.path().join("certs/ca.pem"), authority.pem())
            .or_fail("a certificate");
        std::fs::write(folder.path().join("password"), "secret").or_fail("a password");
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        // A guest may write anything: this looks like a qcow2 image, but is not one.
        let mut content = disk::content(5, 8 * MIB);
        content[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
        std::fs::write(&first, &content).or_fail("a state");
        std::fs::write(&second, &content).or_fail("a state");
        let file = std::fs::File::options().write(true).open(&second).or_fail("a state");
        for area in [3, 50] {
            file.write_all_at(&vec![7; 9000], area * BLOCK_BYTES).or_fail("a state");
        }
        let vsphere = Tracked::start_tls(authority.server_config().or_fail("TLS"));
        let states = [first, second].map(|raw| (vsphere.checkpoint(&raw), raw));
        let lines =
            states.iter().map(|(state, raw)| format!("disk.{}={}\n", state.object, raw.display()));
        bring_library(folder.path(), &lines.collect::<String>());
        Self { folder, vsphere, states }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `cdi-importer COMMAND` for the state `current`, or for what changed since `previous`.
    fn program(&self, command: &str, current: usize, previous: Option<usize>) -> Program {
        let url = self.vsphere.url();
        let program = importer(self.folder.path(), command)
            .arg(format!("vddk+{url}/?vm={UUID}&disk={DISK}"))
            .arg("--ca-dir")
            .arg(self.path("certs"))
            .args(["--checkpoint", &self.states[current].0.name]);
        match previous {
            Some(previous) => {
                program.args(["--previous-checkpoint", &self.states[previous].0.change_id])
            }
            None => program,
        }
    }
}

/// `cdi-importer COMMAND` on a machine whose `/opt` is below `root`.
fn importer(root: &Path, command: &str) -> Program {
    Program::new(crate::BINARY)
        .env("CDI_WORKERS_TEST_ROOT", root)
        .args([command, "--user", "user", "--password-file"])
        .arg(root.join("password"))
}

#[test]
fn a_whole_disk_is_imported_and_then_its_changes_are_applied() {
    let scene = Scene::new();
    let target = scene.path("disk.img");
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
    assert!(!finished.stderr.contains("secret"), "{}", finished.stderr);
}

#[test]
fn wrong_uses_are_refused_and_leave_no_target() {
    let scene = Scene::new();
    let target = scene.path("disk.img");
    for (program, code, sentence) in [
        (scene.program("import", 1, Some(0)), 3, "apply it to the disk of the earlier checkpoint"),
        (scene.program("apply", 1, None), 2, "a VMware disk with --previous-checkpoint"),
        (scene.program("apply", 1, Some(0)), 7, "no such file or directory"),
        (
            scene.program("import", 0, None).args(["--format", "qcow2"]),
            2,
            "--format and --ova are for images",
        ),
        (scene.program("import", 0, None).args(["--thumbprint", "AA"]), 2, "--thumbprint"),
        (
            importer(scene.folder.path(), "import").arg("vddk+https://127.0.0.1/?vm=1"),
            2,
            "vddk+https://VCENTER/?vm=UUID&disk=[DATASTORE] FOLDER/FILE.vmdk",
        ),
    ] {
        let finished = program.arg(&target).run();
        assert_eq!(finished.code(), code, "{}", finished.stderr);
        assert!(finished.stderr.contains(sentence), "{}", finished.stderr);
        assert!(!target.exists() && !finished.stderr.contains("secret"), "{}", finished.stderr);
    }
}

#[test]
#[ignore = "server: vcsim"]
fn the_simulator_is_trusted_only_by_its_thumbprint() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let served = folder.path().join("served");
    std::fs::write(&served, disk::content(1, MIB)).or_fail("a disk");
    std::fs::write(folder.path().join("password"), "secret").or_fail("a password");
    bring_library(folder.path(), &format!("disk={}\n", served.display()));
    let vsphere = Vsphere::start();
    let machine = &vsphere.machines()[0];
    let address = format!("vddk+{}/?vm={}&disk={}", vsphere.url(), machine.uuid, machine.disk);
    let target = folder.path().join("disk.img");
    let program = || importer(folder.path(), "import").arg(&address).arg(&target);
    let finished = program().run();
    assert_eq!(finished.code(), 3, "{}", finished.stderr);
    assert!(!target.exists() && finished.stderr.contains("certificate"), "{}", finished.stderr);
    let finished = program().args(["--thumbprint", vsphere.thumbprint()]).run();
    finished.assert_success("the certificate has this thumbprint");
    disk::assert_same(&target, &served, MIB, "the disk");
}
