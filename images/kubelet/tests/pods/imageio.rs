//! Import pods for disks of oVirt, with an engine and an image server over TLS.

use std::fs;

use kubelet::controller::Import;
use testkit::fail::OrFail;
use testkit::images::{Content, Spec};
use testkit::ovirt::{Contents, DISK_ID, Engine, PASSWORD, Script, USER};

use super::scene::{MIB, SERVER, Scene, TRUSTED, claims};

/// The raw disk in this file.
pub(crate) fn raw(path: impl AsRef<std::path::Path>) -> Contents {
    Contents { raw: fs::read(path).or_fail("a disk").into(), ..Contents::default() }
}

/// Starts an engine that pods can reach. Returns it and its URL.
pub(crate) fn start_engine(scene: &Scene, script: Script) -> (Engine, String) {
    let script = Script { host: Some(SERVER.0.to_owned()), ..script };
    let tls = scene.authority.server_config().or_fail("a server");
    let engine = Engine::start_tls(script, tls);
    for address in engine.addresses() {
        scene.network.open(address);
    }
    let url = engine.api_url().replace("127.0.0.1", SERVER.0);
    (engine, url)
}

/// Calls `run` with the settings for the disk of an engine.
fn with_engine(mut scene: Scene, script: Script, run: impl FnOnce(&Scene, &Import<'_>)) {
    let user = vec![("accessKeyId", USER.to_owned()), ("secretKey", PASSWORD.to_owned())];
    scene.objects.push(("engine", user));
    let (_engine, url) = start_engine(&scene, script);
    let env = &[
        ("IMPORTER_SOURCE", "imageio"),
        ("IMPORTER_ENDPOINT", url.as_str()),
        ("IMPORTER_DISK_ID", DISK_ID),
    ];
    let secret = Some("engine");
    run(&scene, &Import { env, secret, mounts: &TRUSTED, hosts: &[SERVER], ..Import::default() });
}

#[test]
#[ignore = "tools: mkfs.ext4, qemu-img"]
fn a_disk_of_ovirt_is_imported_to_files_and_devices() {
    let (scene, image) = Scene::with_image();
    with_engine(scene, Script::new(raw(&image.raw)), |scene, import| {
        scene.import_to_each(import, "image.raw", &[]);
    });
}

#[test]
#[ignore = "tools: mkfs.ext4, qemu-img, qemu-io"]
fn a_disk_of_ovirt_is_imported_in_stages_to_files_and_devices() {
    let scene = Scene::new();
    let bytes = 8 * MIB;
    let spec = Spec { virtual_size: bytes, ..Spec::new(Content::Empty) };
    let delta = spec.build_delta(bytes, scene.folder.path(), "delta");
    delta.rename_base("/rhev/data-center/mnt/images/first");
    let second = Contents {
        cow: fs::read(&delta.qcow2).or_fail("the difference").into(),
        ..Contents::default()
    };
    let snapshots = [("first".to_owned(), raw(&delta.base)), ("second".to_owned(), second)];
    let empty = Contents { raw: vec![0; 512].into(), ..Contents::default() };
    let script = Script { snapshots: snapshots.into(), ..Script::new(empty) };
    with_engine(scene, script, |scene, import| {
        for claim in claims() {
            for (current, previous, expected) in
                [("first", "", &delta.base), ("second", "first", &delta.raw)]
            {
                let stage = [
                    ("IMPORTER_CURRENT_CHECKPOINT", current),
                    ("IMPORTER_PREVIOUS_CHECKPOINT", previous),
                ];
                let env = &[import.env, &stage].concat();
                let ended = scene.import(&claim, &Import { env, ..*import });
                let expected = expected.to_str().or_fail("a path");
                scene.assert_imported(&claim, &ended, expected, false, &[]);
            }
        }
    });
}
