//! Imports over NBD make the disk that `qemu-img` makes.

use testkit::disk::assert_same;
use testkit::images::{Content, Spec};
use testkit::loopdev::LoopDevice;
use testkit::nbd::NbdServer;
use testkit::process::Program;

use super::*;

fn importer() -> Program {
    Program::new(crate::BINARY)
}

#[test]
#[ignore = "server: nbdkit"]
fn disks_and_images_become_the_disk_of_qemu_img() {
    let folder = tempfile::tempdir().unwrap();
    for content in [Content::Sparse, Content::RandomOrder] {
        let image = Spec::new(content).build(folder.path(), "image");
        let decoded = NbdServer::qemu(["--format=qcow2".to_owned(), text(&image.qcow2)]);
        let plain = NbdServer::nbdkit(["file".to_owned(), format!("file={}", text(&image.qcow2))]);
        for (server, case) in [(&decoded, "decoded by qemu-nbd"), (&plain, "as bytes")] {
            let target = folder.path().join("disk.img");
            let finished =
                importer().args(["import", "--force", &server.uri("")]).args([&target]).run();
            finished.assert_success(case);
            assert_same(&target, &image.raw, image.virtual_size, case);
            let device = LoopDevice::new(folder.path(), image.virtual_size, 512);
            let finished = importer().args(["import", &server.uri("")]).args([device.path()]).run();
            finished.assert_success(case);
            assert_same(device.path(), &image.raw, image.virtual_size, case);
        }
    }
}
