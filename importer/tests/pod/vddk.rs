//! A VMware disk: vSphere's simulator, and nbdkit with a stand-in for VMware's library.

use testkit::disk;
use testkit::fail::OrFail;
use testkit::vsphere::Vsphere;

use super::pod::Pod;

const QCOW2_MAGIC: &[u8] = b"QFI\xfb\0\0\0\x03";

#[test]
fn what_a_guest_wrote_is_the_disk_whatever_it_looks_like() {
    let vsphere = Vsphere::start();
    let machine = &vsphere.machines()[0];
    let pod = Pod::new(&[
        ("IMPORTER_SOURCE", "vddk"),
        ("IMPORTER_ENDPOINT", vsphere.url()),
        ("IMPORTER_UUID", &machine.instance_uuid),
        ("IMPORTER_BACKING_FILE", &machine.disk),
        ("IMPORTER_ACCESS_KEY_ID", "user"),
        ("IMPORTER_SECRET_KEY", "secret"),
    ]);
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
    assert!(!finished.stderr.contains("secret"), "{}", finished.stderr);
}
