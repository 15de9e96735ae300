//! A VMware disk, by vSphere's simulator and by nbdkit with a stand-in for VMware's library.

use testkit::disk;
use testkit::fail::OrFail;
use testkit::loopdev::LoopDevice;
use testkit::vsphere::{Machine, TEST_INFO, Vsphere, bring_test_image};

use super::pod::{MIB, Pod};

const QCOW2_MAGIC: &[u8] = b"QFI\xfb\0\0\0\x03";

/// A pod that imports the disk of a machine.
fn pod(vsphere: &Vsphere, machine: &Machine, env: &[(&str, &str)]) -> Pod {
    let disk = [
        ("IMPORTER_SOURCE", "vddk"),
        ("IMPORTER_ENDPOINT", vsphere.url()),
        ("IMPORTER_UUID", &machine.instance_uuid),
        ("IMPORTER_BACKING_FILE", &machine.disk),
        ("IMPORTER_ACCESS_KEY_ID", "user"),
        ("IMPORTER_SECRET_KEY", "secret"),
    ];
    Pod::new(&[&disk, env].concat())
}

#[test]
#[ignore = "server: vcsim"]
fn the_disk_of_a_guest_is_copied_as_it_is_even_if_it_looks_like_qcow2() {
    let vsphere = Vsphere::start();
    let machine = &vsphere.machines()[0];
    let pod = pod(&vsphere, machine, &[]);
    let mut content = disk::sparse_content(3, 8 << 20, 4);
    content[..QCOW2_MAGIC.len()].copy_from_slice(QCOW2_MAGIC);
    let served = pod.path("served");
    std::fs::write(&served, &content).or_fail("the disk of the machine");
    pod.with_library(&format!("disk={}\n", served.display()));

    let finished = pod.assert_succeeds_with(
        r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"vddkInfo":{"Version":"7.0.3","Host":"esx1.example.com"},"message":"Import Complete"}"#,
    );
    assert!(std::fs::read(pod.disk()).or_fail("the disk") == content);
    assert!(finished.stderr.contains("Log line from nbdkit: "));
    // nbdkit needs files, so that only system calls are restricted, after its start.
    let is_restricted = finished.stderr.contains("sandbox: files not restricted (nbdkit");
    assert!(is_restricted, "{}", finished.stderr);
    assert!(!finished.stderr.contains("secret"), "{}", finished.stderr);
}

/// As in CDI's own tests: the simulator, an invalid thumbprint, a side-car with plugin and disk.
#[test]
#[ignore = "server: vcsim"]
fn the_test_image_of_cdi_suffices_for_whole_disks_and_for_stages() {
    let vsphere = Vsphere::start_as_vcsim();
    let machine = &vsphere.machines()[1];
    let content = disk::sparse_content(4, 44 * MIB, 4);
    for on_device in [false, true] {
        for checkpoints in [&[("", "")][..], &[("first", ""), ("second", "first")]] {
            let mut pod = pod(&vsphere, machine, &[("IMPORTER_THUMBPRINT", "testprint")]);
            let served = pod.path("served");
            std::fs::write(&served, &content).or_fail("the disk of the machine");
            bring_test_image(pod.root.path(), &served);
            let device = on_device.then(|| LoopDevice::new(pod.root.path(), 45 * MIB, 512));
            if let Some(device) = &device {
                let place = pod.path("dev/cdi-block-volume");
                std::os::unix::fs::symlink(device.path(), place).or_fail("a volume");
            }
            for (current, previous) in checkpoints {
                for (name, value) in [
                    ("IMPORTER_CURRENT_CHECKPOINT", current),
                    ("IMPORTER_PREVIOUS_CHECKPOINT", previous),
                ] {
                    pod.env.retain(|(known, _)| known != name);
                    pod.env.push((name.to_owned(), (*value).to_owned()));
                }
                let finished = pod.run();
                let message = pod.message().unwrap_or_default();
                assert_eq!(finished.code(), 0, "{message} {}", finished.stderr);
                for info in TEST_INFO {
                    assert!(message.contains(info), "{message}");
                }
                let disk =
                    device.as_ref().map_or_else(|| pod.disk(), |device| device.path().to_owned());
                disk::assert_same(
                    &disk,
                    &served,
                    44 * MIB,
                    &format!("{current:?} on a device: {on_device}"),
                );
            }
        }
    }
}
