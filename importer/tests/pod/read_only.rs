//! A pod whose root filesystem is read-only and has no `/tmp`.

use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Spec};
use testkit::layout_registry::LayoutRegistry;
use testkit::origin::Script;
use testkit::process::Finished;
use testkit::{disk, oci};

use super::pod::{Pod, SUCCESS, serve};

/// Runs `pod` in a root that holds what a container image may hold, and the volumes of the pod.
fn run(pod: &Pod) -> Finished {
    let root = tempfile::tempdir().or_fail("a root");
    let script = "set -e
        root=$1 pod=$2 program=$3
        shift 3
        mount -t tmpfs none \"$root\"
        cd \"$root\"
        for folder in usr etc dev proc sys; do
            mkdir $folder
            mount --bind /$folder $folder
        done
        for folder in usr etc; do mount -o remount,bind,ro $folder; done
        for link in bin sbin lib lib64; do [ ! -L /$link ] || cp -P /$link .; done
        # As every runtime mounts it.
        mount -t tmpfs none dev/shm
        mkdir pod program
        mount --bind \"$pod\" pod
        mount --bind \"$(dirname \"$program\")\" program
        mount -o remount,ro \"$root\"
        exec chroot \"$root\" /program/cdi-importer \"$@\"";
    let words = ["--mount", "sh", "-c", script, "sh"].map(str::to_owned).into_iter();
    let words = words.chain([root.path(), pod.root.path()].map(|path| path.display().to_string()));
    let program = testkit::process::Program::new(crate::BINARY).args(["-v=3"]);
    let env = pod.env.iter().filter(|(name, _)| name != "TMPDIR");
    let program = env.fold(program, |program, (name, value)| {
        let value = if name == "CDI_WORKERS_TEST_ROOT" { "/pod" } else { value };
        program.env(name, value)
    });
    program.under("unshare", words).start().wait()
}

#[test]
#[ignore = "root: mounts"]
fn images_arrive_where_nothing_but_the_volume_can_be_written() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = Spec { compression: Compression::Zlib, ..Spec::new(Content::Sparse) }
        .build(folder.path(), "image");
    let qcow2 = std::fs::read(&image.qcow2).or_fail("the image");
    let container_disk = oci::Image::of_disk(&qcow2, oci::Compression::Gzip);
    let registry = LayoutRegistry::of_images(&[container_disk]);
    let origin = serve(Script::new(qcow2));
    for (source, endpoint) in [("http", origin.url("/disk")), ("registry", registry.reference())] {
        let pod = Pod::new(&[
            ("IMPORTER_SOURCE", source),
            ("IMPORTER_ENDPOINT", &endpoint),
            ("INSECURE_TLS", "true"),
            ("IMPORTER_REGISTRY_IMAGE_ARCHITECTURE", "amd64"),
        ]);
        run(&pod).assert_success(source);
        assert_eq!(pod.message().as_deref(), Some(SUCCESS), "{source}");
        disk::assert_same(&pod.disk(), &image.raw, image.virtual_size, source);
    }
}
