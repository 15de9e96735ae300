//! Import pods for VMware disks: the importer's image with nbdkit, a side-car with a replacement
//! for VMware's library, and vSphere's simulator, or a scripted vSphere for tracked changes.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet::controller::{self, Import};
use kubelet::images::{self, Image};
use kubelet::network::{NODE, Network};
use kubelet::pod;
use kubelet::state::{Terminated, Verdict};
use kubelet::volumes::{Claim, Objects};
use testkit::certs::Authority;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::tools;
use testkit::vsphere::tracked::{DISK, Tracked, UUID};
use testkit::vsphere::{Machine, TEST_INFO, Vsphere, bring_library, bring_test_image};

use super::scene::{
    CLAIM_BYTES, Files, MIB, assert_allocation, assert_disk, claims, claims_and_preallocation,
    disk_image, success, with_claim,
};

/// Options of VMware's library that CDI's tests look for in the log.
const OPTIONS: [&str; 2] =
    ["VixDiskLib.nfcAio.Session.BufSizeIn64KB=16", "vixDiskLib.nfcAio.Session.BufCount=4"];

/// The folder of the library in a side-car image, and below `/opt`.
const LIBRARY: &str = "vmware-vix-disklib-distrib/lib64";

/// A network, and a user's image with everything needed to read VMware disks.
struct Scene {
    network: Network,
    folder: tempfile::TempDir,
    side_car: String,
    options: Option<String>,
}

impl Scene {
    /// Makes a side-car with a replacement plugin that has these options. The plugin finds these
    /// files of `folder` in `/opt/testing`.
    fn new(folder: tempfile::TempDir, disks: &[&str], options: String) -> Self {
        bring_library(folder.path(), "");
        let brought = folder.path().join("opt/testing");
        for disk in disks {
            fs::copy(folder.path().join(disk), brought.join(disk)).or_fail(disk);
        }
        Self::of(folder, Some(options))
    }

    /// Makes a side-car from the files in `folder/opt`.
    fn of(folder: tempfile::TempDir, options: Option<String>) -> Self {
        Self { network: Network::new(), side_car: side_car(folder.path()), folder, options }
    }

    /// Starts VMware's simulator, in which every machine has the disk of `disk_image`.
    fn with_simulator() -> (Self, Vsphere) {
        let folder = tempfile::tempdir().or_fail("a folder");
        disk_image(folder.path());
        let options = format!("disk=/opt/testing/image.raw\n{}\n{}\n", OPTIONS[0], OPTIONS[1]);
        let scene = Self::new(folder, &["image.raw"], options);
        let vsphere = Vsphere::start();
        scene.network.open(address(vsphere.url()));
        (scene, vsphere)
    }

    /// Imports a disk from the vSphere at `url` with the settings of `import`.
    fn import(
        &self,
        url: &str,
        claim: &Claim,
        import: &Import<'_>,
        files: &[Files],
        change: fn(&mut Container),
    ) -> Terminated {
        let url = url.replace("127.0.0.1", &NODE.to_string());
        let env = [("IMPORTER_SOURCE", "vddk"), ("IMPORTER_ENDPOINT", url.as_str())];
        let import = Import {
            env: &[&env, import.env].concat(),
            secret: Some("vsphere"),
            side_car: Some(&self.side_car),
            library_options: self.options.as_ref().map(|_| "options"),
            ..*import
        };
        let mut pod = controller::importer(claim, &import);
        change(importer(&mut pod));
        let user = [("accessKeyId", "user".to_owned()), ("secretKey", "secret".to_owned())];
        let options =
            self.options.clone().map(|text| ("options", vec![("vddk-config-file", text)]));
        let own = [("vsphere", user.to_vec())].into_iter().chain(options);
        let objects =
            Objects { files: own.chain(files.iter().cloned()).collect(), ..with_claim(claim) };
        pod::start(&self.network, &pod, &objects).wait("importer")
    }

    /// Fails the test unless the claim contains the disk `expected`, a file in the scene's folder.
    #[track_caller]
    fn assert_imported(
        &self,
        claim: &Claim,
        ended: &Terminated,
        expected: &str,
        preallocated: bool,
    ) {
        assert_eq!(ended.import(), success("Import Complete", preallocated), "{}", ended.log);
        assert!(!ended.out_of_memory, "{}", ended.log);
        let expected = self.folder.path().join(expected);
        let bytes = expected.metadata().or_fail("the disk").len();
        assert_disk(claim, &expected, bytes);
    }
}

fn address(url: &str) -> SocketAddr {
    let (_, address) = url.split_once("://").or_fail(url);
    address.parse().or_fail(address)
}

/// The variables that select the disk of a machine.
fn disk_of(machine: &Machine) -> [(&str, &str); 2] {
    [("IMPORTER_UUID", &machine.uuid), ("IMPORTER_BACKING_FILE", &machine.disk)]
}

/// Builds a user's image that contains `opt` of this folder and copies it to where the importer
/// looks for it.
fn side_car(folder: &Path) -> String {
    let base = Image::ImporterVddk.id();
    let lines = format!(
        "FROM {base}\nCOPY opt /library\nENTRYPOINT [\"/bin/sh\", \"-c\", \"cp -r /library/* /opt\"]\n"
    );
    fs::write(folder.join("Containerfile"), lines).or_fail("a Containerfile");
    images::build(folder)
}

fn importer(pod: &mut Pod) -> &mut Container {
    let containers = pod.spec.as_mut().map(|spec| &mut spec.containers);
    containers.and_then(|containers| containers.first_mut()).or_fail("a container")
}

fn with_read_only_root(container: &mut Container) {
    let context = container.security_context.get_or_insert_default();
    context.read_only_root_filesystem = Some(true);
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_vmware_disk_is_imported_to_files_and_devices() {
    let (scene, vsphere) = Scene::with_simulator();
    let disk = disk_of(&vsphere.machines()[0]);
    for (claim, preallocate) in claims_and_preallocation() {
        let particulars = [
            ("IMPORTER_THUMBPRINT", vsphere.thumbprint()),
            ("PREALLOCATION", if preallocate { "true" } else { "false" }),
        ];
        let import = Import { env: &[disk, particulars].concat(), ..Import::default() };
        let ended = scene.import(vsphere.url(), &claim, &import, &[], |_| {});
        scene.assert_imported(&claim, &ended, "image.raw", preallocate);
        assert_allocation(&claim, preallocate);
        let annotations = ("7.0.3".to_owned(), "esx1.example.com".to_owned());
        assert_eq!(ended.vddk(), Some(annotations), "{}", ended.message);
        for option in OPTIONS {
            let is_it =
                |line: &str| line.contains("Log line from nbdkit: ") && line.contains(option);
            assert!(ended.log.lines().any(is_it), "{option}: {}", ended.log);
        }
        assert!(!ended.log.contains("secret"), "{}", ended.log);
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_vmware_server_is_verified_with_the_given_certificates() {
    let (scene, vsphere) = Scene::with_simulator();
    let disk = disk_of(&vsphere.machines()[0]);
    let claim = Claim::filesystem(CLAIM_BYTES);
    let authority = Authority::new().or_fail("an authority");
    let import = Import {
        // The thumbprint in CDI's tests, which matches no certificate.
        env: &[&disk[..], &[("IMPORTER_THUMBPRINT", "testprint")]].concat(),
        certificates: Some("ca"),
        ..Import::default()
    };
    let files = [("ca", vec![("ca.pem", authority.pem())])];
    let ended = scene.import(vsphere.url(), &claim, &import, &files, |_| {});
    let Verdict::Failed(message) = ended.import() else {
        panic!("a server of another authority was trusted: {}", ended.log);
    };
    let connect = "Unable to connect to vddk data source: ";
    assert!(message.contains(connect), "{message}");
    assert!(message.contains("certificate"), "{message}");

    // Without a CA certificate, and with only the writable places that every container has.
    let import = Import { certificates: None, ..import };
    let ended = scene.import(vsphere.url(), &claim, &import, &[], with_read_only_root);
    scene.assert_imported(&claim, &ended, "image.raw", false);
    assert!(ended.log.contains("the vSphere server is not verified"), "{}", ended.log);
}

/// Like CDI's own tests, whose side-car has no library and whose vSphere is VMware's simulator.
#[test]
#[ignore = "tools: qemu-img"]
fn the_test_image_of_cdi_works_for_whole_disks_and_for_stages() {
    let folder = tempfile::tempdir().or_fail("a folder");
    disk_image(folder.path());
    bring_test_image(folder.path(), &folder.path().join("image.raw"));
    let mut scene = Scene::of(folder, None);
    let vsphere = Vsphere::start_as_vcsim();
    scene.network.open(address(vsphere.url()));
    let disk = disk_of(&vsphere.machines()[0]);
    for claim in claims() {
        for (current, previous) in [("", ""), ("first", ""), ("second", "first")] {
            // The plugin of that image accepts either library options or a snapshot.
            scene.options = current.is_empty().then(|| OPTIONS.join("\n"));
            let particulars = [
                ("IMPORTER_THUMBPRINT", "testprint"),
                ("IMPORTER_CURRENT_CHECKPOINT", current),
                ("IMPORTER_PREVIOUS_CHECKPOINT", previous),
            ];
            let import = Import { env: &[&disk[..], &particulars].concat(), ..Import::default() };
            let ended = scene.import(vsphere.url(), &claim, &import, &[], |_| {});
            scene.assert_imported(&claim, &ended, "image.raw", false);
            let [version, host] = TEST_INFO.map(str::to_owned);
            assert_eq!(ended.vddk(), Some((version, host)), "{}", ended.message);
            let are_options_told = OPTIONS.iter().all(|option| ended.log.contains(option));
            assert_eq!(are_options_told, scene.options.is_some(), "{}", ended.log);
        }
    }
}

/// Writes three states of a guest's disk to `folder`: data, then a part of it overwritten, then a
/// part of it zeroed.
fn write_states(folder: &Path) -> [&'static str; 3] {
    let names = ["first.raw", "second.raw", "third.raw"];
    let mut disk = disk::sparse_content(1, 24 * MIB, 4);
    let changes = [(0, 0), (5 * MIB, 1), (5 * MIB + (1 << 16), 0)];
    for (name, (at, seed)) in names.into_iter().zip(changes) {
        let at = usize::try_from(at).or_fail("a place");
        let written = match seed {
            0 => vec![0; 1 << 19],
            seed => disk::content(seed, MIB),
        };
        disk[at..at + written.len()].copy_from_slice(&written);
        disk::write_sparse(&folder.join(name), &disk);
    }
    names
}

#[test]
fn a_vmware_disk_is_imported_in_stages_to_files_and_devices() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let names = write_states(folder.path());
    let vsphere = Tracked::start();
    let states = names.map(|name| vsphere.checkpoint(&folder.path().join(name)));
    let options = states.iter().zip(names);
    let options =
        options.map(|(state, name)| format!("disk.{}=/opt/testing/{name}\n", state.object));
    let scene = Scene::new(folder, &names, options.collect());
    scene.network.open(address(&vsphere.url()));
    for claim in claims() {
        // A stage names the previous one by its snapshot or by its change ID.
        for (number, previous) in [(0, ""), (1, &states[0].object), (2, &states[1].change_id)] {
            let import = Import {
                env: &[
                    ("IMPORTER_UUID", UUID),
                    ("IMPORTER_BACKING_FILE", DISK),
                    ("IMPORTER_CURRENT_CHECKPOINT", &states[number].object),
                    ("IMPORTER_PREVIOUS_CHECKPOINT", previous),
                    ("IMPORTER_FINAL_CHECKPOINT", if number == 2 { "true" } else { "false" }),
                ],
                ..Import::default()
            };
            let ended = scene.import(&vsphere.url(), &claim, &import, &[], |_| {});
            scene.assert_imported(&claim, &ended, names[number], false);
        }
    }
}

/// Builds a library that is linked like VMware's and does nothing.
fn build_library(path: &Path) {
    // The symbols that nbdkit's plugin looks up.
    let functions = [
        "InitEx",
        "Exit",
        "ListTransportModes",
        "GetErrorText",
        "FreeErrorText",
        "FreeConnectParams",
        "ConnectEx",
        "Open",
        "GetTransportMode",
        "Close",
        "Disconnect",
        "GetInfo",
        "FreeInfo",
        "Read",
        "Write",
        "Create",
        "Flush",
        "ReadAsync",
        "WriteAsync",
        "Wait",
        "QueryAllocatedBlocks",
        "FreeBlockList",
        "AllocateConnectParams",
    ];
    let code: String =
        functions.iter().map(|name| format!("void VixDiskLib_{name}(void) {{}}\n")).collect();
    let source = path.with_extension("c");
    fs::write(&source, code).or_fail("a library's source");
    let needed = [
        "stdc++.so.6",
        "gcc_s.so.1",
        "z.so.1",
        "crypt.so.1",
        "m.so.6",
        "dl.so.2",
        "pthread.so.0",
        "rt.so.1",
    ];
    let needed = needed.map(|name| format!("-l:lib{name}"));
    let words = ["-shared", "-fPIC", "-Wl,--no-as-needed", "-o"].map(str::to_owned);
    let files = [path, &source].map(|path| path.display().to_string());
    tools::run("gcc", words.iter().chain(&files).chain(&needed));
    fs::remove_file(source).or_fail("a library's source");
}

#[test]
fn nbdkits_vddk_plugin_loads_the_library_of_the_side_car() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let library = folder.path().join("opt").join(LIBRARY);
    fs::create_dir_all(&library).or_fail("a folder");
    build_library(&library.join("libvixDiskLib.so.7"));
    let side_car = side_car(folder.path());
    let import = Import { side_car: Some(&side_car), ..Import::default() };
    let claim = Claim::filesystem(CLAIM_BYTES);
    let mut pod = controller::importer(&claim, &import);
    let container = importer(&mut pod);
    with_read_only_root(container);
    let words = [
        "nbdkit",
        "--verbose",
        "--filter=retry",
        "--filter=cacheextents",
        "vddk",
        "--dump-plugin",
        "libdir=/opt/vmware-vix-disklib-distrib",
    ];
    container.command = Some(words.map(str::to_owned).to_vec());
    container.args = None;
    let network = Network::new();
    let ended = pod::start(&network, &pod, &with_claim(&claim)).wait("importer");
    assert_eq!(ended.code, 0, "{}", ended.log);
    for line in [
        "vddk_library_version=7".to_owned(),
        format!("vddk_dll=/opt/{LIBRARY}/libvixDiskLib.so.7"),
        // VMware's library needs LD_LIBRARY_PATH for its own libraries, so nbdkit restarts itself
        // with it.
        format!("re-executing with updated LD_LIBRARY_PATH=/opt/{LIBRARY}"),
    ] {
        assert!(ended.log.contains(&line), "{line}: {}", ended.log);
    }
}
