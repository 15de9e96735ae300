//! Import pods for VMware disks: the importer's image with nbdkit, a side-car with a replacement
//! for VMware's library, and vSphere's simulator, or a scripted vSphere for tracked changes.

use std::fs;
use std::path::{Path, PathBuf};

use kubelet::controller::{self, CERTIFICATES, Import, LIBRARY_OPTIONS, MountPoint};
use kubelet::images::{self, Image};
use kubelet::network::NODE;
use kubelet::pod;
use kubelet::state::{Terminated, Verdict};
use kubelet::volumes::Claim;
use testkit::certs::{Authority, KeyKind};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::tools;
use testkit::vsphere::host::EsxiHost;
use testkit::vsphere::tracked::{Checkpoint, DISK, Tracked, UUID, file_of};
use testkit::vsphere::{Machine, TEST_INFO, Vsphere, bring_library, bring_test_image};

use super::scene::{CLAIM_BYTES, MIB, Scene, claims, with_claim};

/// Options of VMware's library that CDI's tests look for in the log.
const OPTIONS: [&str; 2] =
    ["VixDiskLib.nfcAio.Session.BufSizeIn64KB=16", "vixDiskLib.nfcAio.Session.BufCount=4"];

/// The folder of the library in a side-car image, and below `/opt`.
const LIBRARY: &str = "vmware-vix-disklib-distrib/lib64";

/// The thumbprint in CDI's tests, which matches no certificate.
const THUMBPRINT: (&str, &str) = ("IMPORTER_THUMBPRINT", "testprint");

/// The variables that select the disk of the scripted vSphere.
const TRACKED_DISK: [(&str, &str); 2] = [("IMPORTER_UUID", UUID), ("IMPORTER_BACKING_FILE", DISK)];

/// A user's image with everything needed to read VMware disks, and a vSphere.
struct Vmware {
    scene: Scene,
    side_car: Option<String>,
    url: String,
}

impl Vmware {
    /// Makes a side-car from the files in `opt` of the scene's folder, if there are any. `options`
    /// are those of the library.
    fn new(mut scene: Scene, vsphere: &str, options: String) -> Self {
        let user = vec![("accessKeyId", "user".to_owned()), ("secretKey", "secret".to_owned())];
        let options = vec![("vddk-config-file", options)];
        scene.objects.extend([("vsphere", user), ("options", options)]);
        let (_, address) = vsphere.split_once("://").or_fail(vsphere);
        scene.network.open(address.parse().or_fail(address));
        let folder = scene.folder.path();
        let side_car = folder.join("opt").exists().then(|| side_car(folder));
        Self { scene, side_car, url: vsphere.replace("127.0.0.1", &NODE.to_string()) }
    }

    fn import(
        &self,
        claim: &Claim,
        env: &[(&str, &str)],
        mounts: &[(MountPoint, &str)],
    ) -> Terminated {
        let basic = [("IMPORTER_SOURCE", "vddk"), ("IMPORTER_ENDPOINT", self.url.as_str())];
        let env = &[&basic, env].concat();
        let (secret, side_car) = (Some("vsphere"), self.side_car.as_deref());
        self.scene.import(claim, &Import { env, mounts, secret, side_car, ..Import::default() })
    }

    /// Imports three stages, of which each names the previous one by its snapshot or by its change
    /// ID, to a file and to a device.
    #[track_caller]
    fn assert_imports_stages(
        &self,
        states: &[Checkpoint; 3],
        names: [&str; 3],
        mounts: &[(MountPoint, &str)],
    ) {
        for claim in claims() {
            for (number, previous) in [(0, ""), (1, &states[0].object), (2, &states[1].change_id)] {
                let [uuid, file] = TRACKED_DISK;
                let env = [
                    uuid,
                    file,
                    ("IMPORTER_CURRENT_CHECKPOINT", &states[number].object),
                    ("IMPORTER_PREVIOUS_CHECKPOINT", previous),
                    ("IMPORTER_FINAL_CHECKPOINT", if number == 2 { "true" } else { "false" }),
                ];
                let ended = self.import(&claim, &env, mounts);
                self.scene.assert_imported(&claim, &ended, names[number], false, &[]);
            }
        }
    }
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

/// Like CDI's own tests, whose side-car has no library and whose vSphere is VMware's simulator.
#[test]
#[ignore = "tools: qemu-img"]
fn the_test_image_of_cdi_works_for_whole_disks_and_for_stages() {
    let (scene, image) = Scene::with_image();
    bring_test_image(scene.folder.path(), &image.raw);
    let vsphere = Vsphere::start_as_vcsim();
    let vmware = Vmware::new(scene, vsphere.url(), OPTIONS.join("\n"));
    let disk = disk_of(&vsphere.machines()[0]);
    let [version, host] = TEST_INFO.map(str::to_owned);
    for claim in claims() {
        // The plugin of that image accepts either library options or a snapshot.
        for (current, previous, preallocate, mounts) in [
            ("", "", "true", &[(LIBRARY_OPTIONS, "options")][..]),
            ("", "", "false", &[(LIBRARY_OPTIONS, "options")]),
            ("first", "", "false", &[]),
            ("second", "first", "false", &[]),
        ] {
            let particulars = [
                THUMBPRINT,
                ("PREALLOCATION", preallocate),
                ("IMPORTER_CURRENT_CHECKPOINT", current),
                ("IMPORTER_PREVIOUS_CHECKPOINT", previous),
            ];
            let ended = vmware.import(&claim, &[&disk[..], &particulars].concat(), mounts);
            let is_preallocated = preallocate == "true";
            vmware.scene.assert_imported(&claim, &ended, "image.raw", is_preallocated, &[]);
            let annotations = Some((version.clone(), host.clone()));
            assert_eq!(ended.vddk(), annotations, "{}", ended.message);
            for option in OPTIONS {
                let is_it =
                    |line: &str| line.contains("Log line from nbdkit: ") && line.contains(option);
                let is_told = ended.log.lines().any(is_it);
                assert_eq!(is_told, !mounts.is_empty(), "{option}: {}", ended.log);
            }
            assert!(!ended.log.contains("secret"), "{}", ended.log);
        }
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_vmware_server_is_verified_with_the_given_certificates() {
    let (mut scene, _) = Scene::with_image();
    bring_library(scene.folder.path(), "");
    let image = scene.folder.path().join("image.raw");
    fs::copy(image, scene.folder.path().join("opt/testing/image.raw")).or_fail("the disk");
    let stranger = Authority::new().or_fail("an authority");
    scene.objects.push(("stranger", vec![("ca.pem", stranger.pem())]));
    let vsphere = Vsphere::start();
    let vmware = Vmware::new(scene, vsphere.url(), "disk=/opt/testing/image.raw\n".to_owned());
    let disk = disk_of(&vsphere.machines()[0]);
    let claim = Claim::filesystem(CLAIM_BYTES);
    let options = (LIBRARY_OPTIONS, "options");
    let env = [&disk[..], &[THUMBPRINT]].concat();
    let ended = vmware.import(&claim, &env, &[options, (CERTIFICATES, "stranger")]);
    let Verdict::Failed(message) = ended.import() else {
        panic!("a server of another authority was trusted: {}", ended.log);
    };
    let connect = "Unable to connect to vddk data source: ";
    assert!(message.contains(connect) && message.contains("certificate"), "{message}");

    // Without a certificate of an authority.
    for thumbprint in [THUMBPRINT, ("IMPORTER_THUMBPRINT", vsphere.thumbprint())] {
        let ended = vmware.import(&claim, &[&disk[..], &[thumbprint]].concat(), &[options]);
        vmware.scene.assert_imported(&claim, &ended, "image.raw", false, &[]);
        let warning = "the vSphere server is not verified";
        assert!(ended.log.contains(warning) || thumbprint != THUMBPRINT, "{}", ended.log);
    }
}

/// Writes three states of a guest's disk to these folders: data, then a part of it overwritten,
/// then a part of it zeroed.
fn write_states(folders: &[PathBuf]) -> [&'static str; 3] {
    let names = ["first.raw", "second.raw", "third.raw"];
    let mut disk = disk::sparse_content(1, 24 * MIB, 4);
    let changes = [
        (0, vec![0; 1 << 19]),
        (5 << 20, disk::content(1, MIB)),
        ((5 << 20) + (1 << 16), vec![0; 1 << 19]),
    ];
    for (name, (at, written)) in names.into_iter().zip(changes) {
        disk[at..at + written.len()].copy_from_slice(&written);
        folders.iter().for_each(|folder| disk::write_sparse(&folder.join(name), &disk));
    }
    names
}

#[test]
#[ignore = "root: podman"]
fn a_vmware_disk_is_imported_in_stages_to_files_and_devices() {
    let scene = Scene::new();
    bring_library(scene.folder.path(), "");
    let folder = scene.folder.path();
    let names = write_states(&[folder.to_owned(), folder.join("opt/testing")]);
    let vsphere = Tracked::start();
    let states = names.map(|name| vsphere.checkpoint(&scene.folder.path().join(name)));
    let options = states.iter().zip(names);
    let options =
        options.map(|(state, name)| format!("disk.{}=/opt/testing/{name}\n", state.object));
    let vmware = Vmware::new(scene, &vsphere.url(), options.collect());
    vmware.assert_imports_stages(&states, names, &[(LIBRARY_OPTIONS, "options")]);
}

/// The functions of VMware's library that nbdkit's plugin looks up, after `VixDiskLib_`.
const FUNCTIONS: &str = "InitEx Exit ListTransportModes GetErrorText FreeErrorText FreeConnectParams ConnectEx Open \
    GetTransportMode Close Disconnect GetInfo FreeInfo Read Write Create Flush ReadAsync WriteAsync Wait \
    QueryAllocatedBlocks FreeBlockList AllocateConnectParams";

/// What the library of [`build_library`] answers.
const REFUSAL: &str = "this library reads no disks";

/// The libraries with which VMware's is linked.
const NEEDED: &str = "-l:libstdc++.so.6 -l:libgcc_s.so.1 -l:libz.so.1 -l:libcrypt.so.1 -l:libm.so.6 -l:libdl.so.2 \
    -l:libpthread.so.0 -l:librt.so.1";

/// Builds a library that is linked like VMware's and refuses every call.
fn build_library(path: &Path) {
    let functions = FUNCTIONS.split_whitespace().map(|name| match name {
        "GetErrorText" => format!("char *VixDiskLib_{name}(void) {{ return \"{REFUSAL}\"; }}\n"),
        name => format!("long VixDiskLib_{name}(void) {{ return 1; }}\n"),
    });
    let code: String = functions.collect();
    let source = path.with_extension("c");
    fs::write(&source, code).or_fail("a library's source");
    let words = ["-shared", "-fPIC", "-Wl,--no-as-needed", "-o"].map(str::to_owned);
    let files = [path, &source].map(|path| path.display().to_string());
    let needed = NEEDED.split_whitespace().map(str::to_owned);
    tools::run("gcc", words.into_iter().chain(files).chain(needed));
    fs::remove_file(source).or_fail("a library's source");
}

#[test]
#[ignore = "root: podman"]
fn nbdkits_vddk_plugin_loads_the_library_of_the_side_car() {
    let scene = Scene::new();
    let library = scene.folder.path().join("opt").join(LIBRARY);
    fs::create_dir_all(&library).or_fail("a folder");
    build_library(&library.join("libvixDiskLib.so.7"));
    let side_car = side_car(scene.folder.path());
    let import = Import { side_car: Some(&side_car), ..Import::default() };
    let claim = Claim::filesystem(CLAIM_BYTES);
    let mut pod = controller::importer(&claim, &import);
    let container = &mut pod.spec.as_mut().or_fail("a spec").containers[0];
    let words = "nbdkit --verbose --filter=retry --filter=cacheextents vddk --dump-plugin \
        libdir=/opt/vmware-vix-disklib-distrib";
    container.command = Some(words.split_whitespace().map(str::to_owned).collect());
    container.args = None;
    let ended = pod::start(&scene.network, &pod, &with_claim(&claim, [])).wait("importer");
    assert_eq!(ended.code, 0, "{}", ended.log);
    for line in [
        "vddk_library_version=7",
        &format!("vddk_dll=/opt/{LIBRARY}/libvixDiskLib.so.7"),
        // VMware's library needs LD_LIBRARY_PATH for its own libraries, so nbdkit restarts itself
        // with it.
        &format!("re-executing with updated LD_LIBRARY_PATH=/opt/{LIBRARY}"),
    ] {
        assert!(ended.log.contains(line), "{line}: {}", ended.log);
    }
}

#[test]
#[ignore = "root: podman"]
fn version_9_of_the_library_is_loaded_under_the_name_that_nbdkit_knows() {
    let scene = Scene::new();
    let library = scene.folder.path().join("opt").join(LIBRARY);
    fs::create_dir_all(&library).or_fail("a folder");
    build_library(&library.join("libvixDiskLib.so.9"));
    let vsphere = Vsphere::start();
    let vmware = Vmware::new(scene, vsphere.url(), String::new());
    let env =
        [&disk_of(&vsphere.machines()[0])[..], &[("IMPORTER_THUMBPRINT", vsphere.thumbprint())]];
    let ended = vmware.import(&Claim::filesystem(CLAIM_BYTES), &env.concat(), &[]);
    let Verdict::Failed(message) = ended.import() else {
        panic!("the library is no real one: {}", ended.log);
    };
    assert!(message.contains(&format!("VixDiskLib_InitEx: {REFUSAL}")), "{message}: {}", ended.log);
    // nbdkit would get the password through a file in /tmp.
    assert!(!ended.log.contains("re-executing"), "{}", ended.log);
}

/// A disk in three states in the scene's folder, a host, and a scripted vSphere.
fn disk_on_host() -> (Scene, [&'static str; 3], EsxiHost, Tracked) {
    let scene = Scene::new();
    let names = write_states(&[scene.folder.path().to_owned()]);
    let authority = Authority::new().or_fail("an authority");
    let host = EsxiHost::start(&authority.server(KeyKind::Ecdsa).or_fail("a certificate"));
    let vsphere = Tracked::start();
    vsphere.use_host(&host, host.port());
    (scene, names, host, vsphere)
}

/// Like the pods of CDI for an init image that is the importer itself: since 1.66.1 (cdi#4263) they
/// have no side-car. The stock importer reads the disk from its host.
#[test]
#[ignore = "root: podman"]
fn a_pod_without_side_car_imports_stages_from_the_host() {
    let (scene, names, host, vsphere) = disk_on_host();
    let folder = scene.folder.path().to_owned();
    // Tickets of a host without vCenter name no host, so pods ask the address that they know.
    vsphere.habits(|habits| habits.is_host = true);
    host.habits(|habits| habits.is_managed = false);
    let states = names.map(|name| vsphere.checkpoint(&folder.join(name)));
    for (state, name) in states.iter().zip(names) {
        host.add_disk(&file_of(&state.object), &folder.join(name));
    }
    let mut vmware = Vmware::new(scene, &vsphere.url(), String::new());
    vmware.scene.network.open(([127, 0, 0, 1], host.port()).into());
    // Older releases make no pod without a side-car: the importer's image then stands for it.
    for side_car in [None, Some(Image::Importer.id())] {
        vmware.side_car = side_car.map(str::to_owned);
        vmware.assert_imports_stages(&states, names, &[]);
    }
    // A machine that is off.
    host.add_disk(DISK, &folder.join(names[2]));
    for claim in claims() {
        let ended = vmware.import(&claim, &TRACKED_DISK, &[]);
        vmware.scene.assert_imported(&claim, &ended, names[2], false, &[]);
    }
    assert_eq!(host.mistakes(), Vec::<String>::new());
    host.habits(|habits| habits.thumbprint = Some(["AA"; 20].join(":")));
    let ended = vmware.import(&Claim::filesystem(CLAIM_BYTES), &TRACKED_DISK, &[]);
    let Verdict::Failed(message) = ended.import() else {
        panic!("another host was trusted: {}", ended.log);
    };
    assert!(message.contains("thumbprint sha1:aaaa"), "{message}");
}

/// Port 902 is closed, or the DataVolume names another way.
#[test]
#[ignore = "root: podman"]
fn a_pod_exports_the_disk_of_a_host_that_it_cannot_reach() {
    // The network of the pods does not lead to the port of the host.
    let (scene, names, _host, vsphere) = disk_on_host();
    let raw = scene.folder.path().join(names[0]);
    vsphere.checkpoint(&raw);
    vsphere.add_export("vm-1", &raw);
    let vmware = Vmware::new(scene, &vsphere.url(), "transport = lease\n".to_owned());
    let with_options = &[(LIBRARY_OPTIONS, "options")][..];
    for (claim, mounts) in claims().into_iter().zip([&[], with_options]) {
        let ended = vmware.import(&claim, &TRACKED_DISK, mounts);
        vmware.scene.assert_imported(&claim, &ended, names[0], false, &[]);
    }
    vsphere.habits(|habits| habits.export_end = Some((1 << 20, false)));
    let ended = vmware.import(&Claim::filesystem(CLAIM_BYTES), &TRACKED_DISK, with_options);
    assert!(matches!(ended.import(), Verdict::Failed(_)), "{}", ended.log);
    let states: Vec<_> = vsphere.leases().iter().map(|lease| lease.state).collect();
    assert_eq!(states, ["done", "done", "aborted"]);
}
