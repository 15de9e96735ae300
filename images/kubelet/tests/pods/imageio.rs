//! Import pods for disks of oVirt, with an engine and an image server over TLS.

use kubelet::controller::Import;
use kubelet::network::Network;
use kubelet::state::Terminated;
use kubelet::volumes::Claim;
use testkit::certs::Authority;
use testkit::fail::OrFail;
use testkit::images::{Content, Spec};
use testkit::ovirt::{Contents, DISK_ID, Engine, PASSWORD, Script, USER};

use super::scene::{
    MIB, SERVER, assert_allocation, assert_disk, claims, claims_and_preallocation, disk_image,
    import, success,
};

/// An engine that pods can reach, and the network.
struct Scene {
    network: Network,
    authority: Authority,
    engine: Engine,
}

impl Scene {
    fn new(script: Script) -> Self {
        let authority = Authority::new().or_fail("an authority");
        let script = Script { host: Some(SERVER.0.to_owned()), ..script };
        let engine = Engine::start_tls(script, authority.server_config().or_fail("a server"));
        let network = Network::new();
        for address in engine.addresses() {
            network.open(address);
        }
        Self { network, authority, engine }
    }

    fn import(&self, claim: &Claim, env: &[(&str, &str)]) -> Terminated {
        let url = self.engine.api_url().replace("127.0.0.1", SERVER.0);
        let basic = [
            ("IMPORTER_SOURCE", "imageio"),
            ("IMPORTER_ENDPOINT", url.as_str()),
            ("IMPORTER_DISK_ID", DISK_ID),
        ];
        let pod = Import {
            env: &[&basic, env].concat(),
            secret: Some("engine"),
            certificates: Some("ca"),
            hosts: &[SERVER],
            ..Import::default()
        };
        let user = [("accessKeyId", USER.to_owned()), ("secretKey", PASSWORD.to_owned())];
        let files = [("engine", user.to_vec()), ("ca", vec![("ca.pem", self.authority.pem())])];
        import(&self.network, claim, &pod, &files)
    }
}

#[test]
#[ignore = "tools: mkfs.ext4, qemu-img"]
fn a_disk_of_ovirt_is_imported_to_files_and_devices() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let scene = Scene::new(Script::new(Contents {
        raw: std::fs::read(&image.raw).or_fail("the disk").into(),
        ..Contents::default()
    }));
    for (claim, preallocate) in claims_and_preallocation() {
        let word = if preallocate { "true" } else { "false" };
        let ended = scene.import(&claim, &[("PREALLOCATION", word)]);
        assert_eq!(ended.import(), success("Import Complete", preallocate), "{}", ended.log);
        assert_disk(&claim, &image.raw, image.virtual_size);
        assert_allocation(&claim, preallocate);
    }
}

#[test]
#[ignore = "tools: mkfs.ext4, qemu-img, qemu-io"]
fn a_disk_of_ovirt_is_imported_in_stages_to_files_and_devices() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let bytes = 8 * MIB;
    let spec = Spec { virtual_size: bytes, ..Spec::new(Content::Empty) };
    let delta = spec.build_delta(bytes, folder.path(), "delta");
    delta.rename_base("/rhev/data-center/mnt/images/first");
    let first = Contents {
        raw: std::fs::read(&delta.base).or_fail("the first state").into(),
        ..Contents::default()
    };
    let second = Contents {
        cow: std::fs::read(&delta.qcow2).or_fail("the difference").into(),
        ..Contents::default()
    };
    let scene = Scene::new(Script {
        snapshots: [("first".to_owned(), first), ("second".to_owned(), second)].into(),
        ..Script::new(Contents { raw: vec![0; 512].into(), ..Contents::default() })
    });
    for claim in claims() {
        for (current, previous, expected) in
            [("first", "", &delta.base), ("second", "first", &delta.raw)]
        {
            let stage = [
                ("IMPORTER_CURRENT_CHECKPOINT", current),
                ("IMPORTER_PREVIOUS_CHECKPOINT", previous),
            ];
            let ended = scene.import(&claim, &stage);
            assert_eq!(ended.import(), success("Import Complete", false), "{}", ended.log);
            assert_disk(&claim, expected, bytes);
        }
    }
}
