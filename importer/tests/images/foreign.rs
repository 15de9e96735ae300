//! Files that are not disk images: a web page is refused (see the table of mistakes), most other
//! content is stored as it is.

use testkit::fail::OrFail;
use testkit::process::Program;
use testkit::random::Random;
use testkit::{disk, oci, tools};

const PAGE: &[u8] =
    b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Who are you?</body></html>\n";

#[test]
#[ignore = "tools: mkfs.ext4"]
fn content_that_may_be_a_disk_is_stored_as_it_is() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let file = folder.path().join("file");
    let name = file.to_str().or_fail("a path of ASCII");
    let filesystem = {
        std::fs::write(&file, vec![0; 4 << 20]).or_fail("a file");
        tools::run("mkfs.ext4", ["-q", "-F", name]);
        std::fs::read(&file).or_fail("a filesystem")
    };
    let mut noise = vec![0; 1 << 20];
    Random::new(7).fill(&mut noise);
    let tar = oci::tar(&[("inside", &disk::content(1, 100_000))]);
    let luks = [b"LUKS\xBA\xBE\0\x02".to_vec(), disk::content(2, 8184)].concat();
    for (bytes, options, warning) in [
        (tar, &[][..], "warning: this is a tar archive, stored unchanged as a disk: "),
        (luks, &[], "warning: this disk is encrypted by LUKS"),
        // A web page is refused, and the message says that this is possible.
        (PAGE.repeat(512), &["--format", "raw"], ""),
        (vec![0; 512], &[], ""),
        ([b"a label".to_vec(), vec![0; 505]].concat(), &[], ""),
        (filesystem, &[], ""),
        (noise, &[], ""),
    ] {
        std::fs::write(&file, &bytes).or_fail("write the file");
        let target = folder.path().join("disk.img");
        let program = Program::new(crate::BINARY).args(["import", "--force", name]);
        let finished = program.args(options.to_vec()).arg(&target).run();
        finished.assert_success(warning);
        assert!(std::fs::read(&target).or_fail("a disk") == bytes, "{warning}");
        let said = &finished.stderr;
        assert!(said.contains(warning) && said.is_empty() == warning.is_empty(), "{said}");
    }
}
