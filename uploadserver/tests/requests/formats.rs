//! Every image format, uploaded to a file and to a device: the disk must be the one that qemu-img
//! reads.

use testkit::cases::check_all;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Oracle, SUBFORMATS};
use testkit::loopdev::LoopDevice;
use testkit::upload_pod::UploadPod;

/// Not a multiple of any block or grain.
const DISK_BYTES: u64 = (5 << 20) + 3 * 512;

#[test]
#[ignore = "root: loop devices"]
fn every_format_gives_the_disk_that_qemu_img_reads() {
    check_all(SUBFORMATS, |subformat| {
        let folder = tempfile::tempdir().or_fail("a folder");
        let path = |name: &str| folder.path().join(name);
        let content = disk::sparse_content(1, DISK_BYTES, 4);
        std::fs::write(path("source"), content).or_fail("the disk");
        subformat.write(&path("source"), &path("image"));
        let oracle = Oracle::ask(subformat.format, &path("image"), &path("raw"));
        let image = std::fs::read(path("image")).or_fail("the image");
        for to_device in [false, true] {
            let device = to_device.then(|| {
                let bytes = oracle.virtual_size.next_multiple_of(1 << 20);
                LoopDevice::new(folder.path(), bytes, 512)
            });
            let pod = UploadPod::new(crate::BINARY).block_on(device.as_ref());
            pod.start().post_last("/v1beta1/upload", &image);
            disk::assert_same(&pod.disk(), &path("raw"), oracle.virtual_size, "upload");
        }
    });
}
