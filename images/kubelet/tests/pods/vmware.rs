//! Import pods of VMware disks: the image with nbdkit, a side-car that brings a stand-in for VMware's library, vSphere's simulator.

use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet::controller::{self, Import};
use kubelet::images::{self, Image};
use kubelet::network::{NODE, Network};
use kubelet::pod;
use kubelet::state::{Terminated, Verdict};
use kubelet::volumes::{Claim, Objects};
use testkit::certs::Authority;
use testkit::fail::OrFail;
use testkit::tools;
use testkit::vsphere::{Vsphere, build_plugin};

use super::scene::{
    CLAIM_BYTES, Files, allocated_bytes, assert_disk, claims, disk_image, success, with_claim,
};

/// Options of the library that CDI's tests look for in the log.
const OPTIONS: [&str; 2] = [
    "VixDiskLib.nfcAio.Session.BufSizeIn64KB=16",
    "vixDiskLib.nfcAio.Session.BufCount=4",
];

/// The folder of the library, in a side-car image and below `/opt`.
const LIBRARY: &str = "vmware-vix-disklib-distrib/lib64";

/// A vSphere that pods can reach, and a user's image with what reads its disks.
struct Scene {
    network: Network,
    folder: tempfile::TempDir,
    vsphere: Vsphere,
    side_car: String,
}

impl Scene {
    /// The disk of each machine is that of `disk_image`.
    fn new() -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        let disk = disk_image(folder.path());
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("testing")).or_fail("a folder");
        let plugin = build_plugin(folder.path());
        fs::copy(plugin, tree.join("testing/libvddk-test-plugin.so")).or_fail("the plugin");
        fs::copy(&disk.raw, tree.join("testing/disk.img")).or_fail("the disk");
        fs::create_dir_all(tree.join(LIBRARY)).or_fail("a folder");
        let network = Network::new();
        let vsphere = Vsphere::start();
        let address = vsphere.url().trim_start_matches("https://");
        network.open(address.parse().or_fail(address));
        Self {
            side_car: side_car(folder.path()),
            network,
            folder,
            vsphere,
        }
    }

    /// Imports the disk of the first machine as `import` has it, whose environment comes last.
    fn import(
        &self,
        claim: &Claim,
        import: &Import<'_>,
        files: &[Files],
        change: fn(&mut Container),
    ) -> Terminated {
        let machine = &self.vsphere.machines()[0];
        let url = self.vsphere.url().replace("127.0.0.1", &NODE.to_string());
        let env = [
            ("IMPORTER_SOURCE", "vddk"),
            ("IMPORTER_ENDPOINT", &url),
            ("IMPORTER_UUID", &machine.uuid),
            ("IMPORTER_BACKING_FILE", &machine.disk),
        ];
        let import = Import {
            env: &[&env, import.env].concat(),
            secret: Some("vsphere"),
            side_car: Some(&self.side_car),
            library_options: Some("options"),
            ..*import
        };
        let mut pod = controller::importer(claim, &import);
        change(importer(&mut pod));
        let objects = Objects {
            files: objects().into_iter().chain(files.iter().cloned()).collect(),
            ..with_claim(claim)
        };
        pod::start(&self.network, &pod, &objects).wait("importer")
    }

    #[track_caller]
    fn assert_imported(&self, claim: &Claim, ended: &Terminated, preallocated: bool) {
        assert_eq!(
            ended.import(),
            success("Import Complete", preallocated),
            "{}",
            ended.log
        );
        assert!(!ended.out_of_memory, "{}", ended.log);
        let expected = self.folder.path().join("image.raw");
        let bytes = expected.metadata().or_fail("the disk").len();
        assert_disk(claim, &expected, bytes);
    }
}

/// A Secret with user and password, and the ConfigMap with options, of which one is for the stand-in.
fn objects() -> [Files; 2] {
    let user = [("accessKeyId", "user"), ("secretKey", "secret")];
    let options = format!("disk=/opt/testing/disk.img\n{}\n{}\n", OPTIONS[0], OPTIONS[1]);
    [
        (
            "vsphere",
            user.map(|(name, value)| (name, value.to_owned())).to_vec(),
        ),
        ("options", vec![("vddk-config-file", options)]),
    ]
}

/// A user's image that has `tree` of this folder, and copies it to where the importer looks for it.
fn side_car(folder: &Path) -> String {
    let base = Image::ImporterVddk.id();
    let lines = format!(
        "FROM {base}\nCOPY tree /library\nENTRYPOINT [\"/bin/sh\", \"-c\", \"cp -r /library/* /opt\"]\n"
    );
    fs::write(folder.join("Containerfile"), lines).or_fail("a Containerfile");
    images::build(folder)
}

fn importer(pod: &mut Pod) -> &mut Container {
    let containers = pod.spec.as_mut().map(|spec| &mut spec.containers);
    containers
        .and_then(|containers| containers.first_mut())
        .or_fail("a container")
}

fn with_read_only_root(container: &mut Container) {
    let context = container.security_context.get_or_insert_default();
    context.read_only_root_filesystem = Some(true);
}

#[test]
fn a_vmware_disk_comes_onto_files_and_devices() {
    let scene = Scene::new();
    let thumbprint = scene.vsphere.thumbprint();
    for preallocate in [false, true] {
        for claim in claims() {
            let word = if preallocate { "true" } else { "false" };
            let import = Import {
                env: &[("IMPORTER_THUMBPRINT", thumbprint), ("PREALLOCATION", word)],
                ..Import::default()
            };
            let ended = scene.import(&claim, &import, &[], |_| {});
            scene.assert_imported(&claim, &ended, preallocate);
            let annotations = ("7.0.3".to_owned(), "esx1.example.com".to_owned());
            assert_eq!(ended.vddk(), Some(annotations), "{}", ended.message);
            for option in OPTIONS {
                let is_logged = |line: &str| line.contains("Log line from nbdkit: ") && line.contains(option);
                assert!(ended.log.lines().any(is_logged), "{option}: {}", ended.log);
            }
            assert!(!ended.log.contains("secret"), "{}", ended.log);
            if !claim.is_block() {
                let size = claim.disk().metadata().or_fail("the disk").len();
                assert_eq!(allocated_bytes(&claim) >= size, preallocate, "{}", ended.log);
            }
        }
    }
}

#[test]
fn a_vmware_server_is_verified_with_the_certificates_that_are_given() {
    let scene = Scene::new();
    let claim = Claim::filesystem(CLAIM_BYTES);
    let authority = Authority::new().or_fail("an authority");
    let import = Import {
        certificates: Some("ca"),
        ..Import::default()
    };
    let files = [("ca", vec![("ca.pem", authority.pem())])];
    let ended = scene.import(&claim, &import, &files, |_| {});
    let Verdict::Failed(message) = ended.import() else {
        panic!("a server of another authority was trusted: {}", ended.log);
    };
    assert!(
        message.starts_with("Unable to connect to vddk data source: "),
        "{message}"
    );
    assert!(message.contains("certificate"), "{message}");

    // Without any, and with nothing to write to but what every container has.
    let ended = scene.import(&claim, &Import::default(), &[], with_read_only_root);
    scene.assert_imported(&claim, &ended, false);
    assert!(
        ended.log.contains("the vSphere server is not verified"),
        "{}",
        ended.log
    );
}

/// A library that links what VMware's does, and does nothing.
fn build_library(path: &Path) {
    // Symbols that nbdkit's plugin looks up.
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
    let code: String = functions
        .iter()
        .map(|name| format!("void VixDiskLib_{name}(void) {{}}\n"))
        .collect();
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
fn nbdkits_own_plugin_loads_the_library_that_the_side_car_brings() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let library = folder.path().join("tree").join(LIBRARY);
    fs::create_dir_all(&library).or_fail("a folder");
    build_library(&library.join("libvixDiskLib.so.7"));
    let side_car = side_car(folder.path());
    let import = Import {
        side_car: Some(&side_car),
        ..Import::default()
    };
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
        // Found by what it starts anew with, as VMware's needs it for its own libraries.
        format!("re-executing with updated LD_LIBRARY_PATH=/opt/{LIBRARY}"),
    ] {
        assert!(ended.log.contains(&line), "{line}: {}", ended.log);
    }
}
