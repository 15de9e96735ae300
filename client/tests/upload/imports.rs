//! Imports without `--size`, whose disks are looked at from here.

use std::path::Path;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::origin::{Origin, Ranges, Script};
use testkit::process::{Finished, Program};
use testkit::tools;

use crate::{BINARY, NAMESPACE, api};

/// A dry run of an import from `url`.
fn import(url: &str) -> Finished {
    Program::new(BINARY)
        .args(["import", url, "dv/imported", "--dry-run", "client", "-o", "yaml"])
        .args(["--namespace", NAMESPACE, "--kubeconfig"])
        .arg(api().cluster.administrator())
        .run()
}

fn origin(change: impl FnOnce(&mut Script), body: Vec<u8>) -> Origin {
    let mut script = Script::new(body);
    change(&mut script);
    Origin::start(script).or_fail("an HTTP server")
}

/// An empty image of 64 MiB.
fn qcow2(folder: &Path, options: &[&str]) -> Vec<u8> {
    let path = folder.join("image.qcow2");
    let words = [&["create", "-q", "-f", "qcow2"], options].concat();
    let words = words
        .into_iter()
        .map(Into::into)
        .chain([path.clone().into_os_string(), "64M".into()]);
    tools::run("qemu-img", words);
    std::fs::read(path).or_fail("an image")
}

#[test]
fn a_volume_is_as_large_as_the_disk_at_the_url() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = qcow2(folder.path(), &[]);
    let packed = tools::filter("gzip", ["-1c"], &image);
    let raw = disk::content(1, (3 << 20) - 512);
    for (body, ranges, size) in [
        (image.clone(), Ranges::Served, "64Mi"),
        (image, Ranges::Refused, "64Mi"),
        (packed, Ranges::Served, "64Mi"),
        (raw, Ranges::Refused, "3Mi"),
    ] {
        let origin = origin(|script| script.ranges = ranges, body);
        let finished = import(&origin.url("/image"));
        finished.assert_success("a dry run");
        let line = format!("storage: {size}");
        assert!(finished.stdout.contains(&line), "{ranges:?}: {}", finished.stdout);
    }
}

#[test]
fn where_the_size_cannot_be_told_it_is_asked_for() {
    let ask = "how large the disk is cannot be told from here: ";
    let packed = tools::filter("gzip", ["-1c"], &disk::content(2, 1 << 20));
    let packed = origin(|_| (), packed);
    let locked = origin(
        |script| script.basic_auth = Some("user:s3cret".to_owned()),
        vec![0; 512],
    );
    let [nobody] = testkit::ports::free();
    for (url, words) in [
        (
            packed.url("/disk.gz"),
            "all of the image would have to be read; give --size",
        ),
        (locked.url("/disk"), "401"),
        (format!("http://{nobody}/disk"), "refused"),
        (
            "docker://example.org/disk".to_owned(),
            "only http:// and https:// are looked at; give --size",
        ),
    ] {
        let finished = import(&url);
        finished.assert_failure(2, ask);
        let said = &finished.stderr;
        assert!(
            said.contains(words) && said.contains("; give --size"),
            "{url}: {said}"
        );
        assert_eq!(finished.stdout, "");
    }
    let folder = tempfile::tempdir().or_fail("a folder");
    let delta = qcow2(folder.path(), &["-u", "-F", "raw", "-b", "base.raw"]);
    let origin = origin(|_| (), delta);
    import(&origin.url("/delta")).assert_failure(4, "the image would be refused: ");
}
