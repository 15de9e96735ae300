//! The images: their configurations and programs, and whether they run with only what a pod
//! provides.

use std::path::Path;

use kubelet::controller::{bare, worker};
use kubelet::images::Image;
use kubelet::network::Network;
use kubelet::pod;
use kubelet::state::Terminated;
use kubelet::volumes::Objects;
use serde_json::{Value, json};
use testkit::fail::OrFail;
use testkit::process::Program;
use testkit::tools;

/// Runs `command`, or the image's entry point with `arguments`, as a worker with a read-only root
/// file system.
fn run(image: Image, command: Option<&[&str]>, arguments: &[&str]) -> Terminated {
    let mut container = worker("main", image);
    container["args"] = json!(arguments);
    if let Some(command) = command {
        container["command"] = json!(command);
    }
    let network = Network::new();
    pod::start(&network, &bare(container), &Objects::default()).wait("main")
}

#[test]
fn every_image_prints_its_version() {
    for image in Image::ALL {
        // The cloner's entry point replaces a script and does not support flags of Go programs.
        let arguments: &[_] =
            if image == Image::Cloner { &["--version"] } else { &["-v=1", "-version"] };
        let ended = run(image, None, arguments);
        let version = format!("{} {} (", image.program(), env!("CARGO_PKG_VERSION"));
        assert_eq!(ended.code, 0, "{}", image.name());
        assert!(ended.log.starts_with(&version), "{}", ended.log);
    }
}

#[test]
fn image_configurations_are_those_that_controllers_rely_on() {
    for (image, entry_point) in [
        (Image::Importer, vec!["/usr/bin/cdi-importer", "-alsologtostderr"]),
        (Image::UploadServer, vec!["/usr/bin/cdi-uploadserver", "-alsologtostderr"]),
        (Image::UploadProxy, vec!["/usr/bin/cdi-uploadproxy", "-alsologtostderr"]),
        (Image::Cloner, vec!["/usr/bin/cloner_startup.sh"]),
        (Image::ImporterVddk, vec!["/usr/bin/cdi-importer", "-alsologtostderr"]),
    ] {
        let archive = format!("oci-archive:{}", image.archive().display());
        let printed = tools::run("skopeo", ["inspect", "--config", &archive]);
        let config: Value = serde_json::from_str(&printed).or_fail("a configuration");
        let config = config.get("config").or_fail("a configuration");
        assert_eq!(config.get("Entrypoint"), Some(&json!(entry_point)));
        // The user must be a number other than 0: the proxy's Deployment sets runAsNonRoot without
        // a user.
        assert_eq!(config.get("User"), Some(&json!("1001")));
        let labels = config.get("Labels").or_fail("labels");
        let label = |name: &str| labels.get(name).and_then(Value::as_str);
        for (prefix, title) in [("org.opencontainers.image.", "title"), ("", "name")] {
            assert_eq!(label(&format!("{prefix}{title}")), Some(image.name()));
            let version = label(&format!("{prefix}version"));
            assert_eq!(version, Some(env!("CARGO_PKG_VERSION")));
        }
        // Beside `NAME.oci.tar`.
        let bill = image.archive().with_extension("").with_extension("cdx.json");
        let bill = std::fs::read_to_string(&bill).or_fail(bill.display());
        assert!(bill.contains("pkg:cargo/rustls@"), "the bill of materials names what is linked");
        // Packages that are taken from Debian as binaries or compiled from source.
        let has_nbdkit =
            bill.matches("pkg:deb/debian/nbdkit@").count() == 2 && bill.contains("?arch=source\"");
        assert_eq!(has_nbdkit, image == Image::ImporterVddk);
    }
}

#[test]
fn importer_images_have_the_other_programs_that_cdi_runs() {
    let script = "set -e
        for name in bash sh ls md5sum head tr grep wc du cut dd cp tar ln blockdev kill qemu-img; do
            command -v $name >/dev/null || { echo no $name; exit 1; }
        done
        [ -x /usr/sbin/blockdev ] && [ -x /usr/bin/cdi-containerimage-server ] && [ -x /usr/bin/cdi-env-extractor ]
        # As CDI's tests look at permissions: arrays are bash's.
        x=$(ls -ln /usr/bin/cdi-importer); y=($x); echo ${y[0]} ${y[2]}
        head -c 100000 /dev/zero | md5sum | cut -d ' ' -f 1
        [ ! -e /scratch ] && [ ! -e /dev/cdi-block-volume ] && [ ! -e /data ]
        [ -s /etc/ssl/certs/ca-certificates.crt ] && [ -s /licenses/LICENSE ] && [ -s /licenses/LICENCES.gz ]
        echo $(id -u)";
    let siblings = "containerimage-server env-extractor image-size-detection source-update-poller";
    for importer in [Image::Importer, Image::ImporterVddk] {
        let ended = run(importer, Some(&["/bin/sh", "-c", script]), &[]);
        let expected = "-rwxr-xr-x 0\n0019d23bef56a136a1891211d7007f6f\n107\n";
        assert_eq!(ended.log, expected, "{}", ended.code);
        let siblings = siblings.split(' ').map(|name| format!("/usr/bin/cdi-{name}"));
        for program in siblings.chain(["/usr/bin/qemu-img".to_owned()]) {
            let ended = run(importer, Some(&[&program, "--version"]), &[]);
            assert_eq!(ended.code, 0, "{program}: {}", ended.log);
            assert!(ended.log.contains(env!("CARGO_PKG_VERSION")), "{program}: {}", ended.log);
        }
    }
}

#[test]
fn the_importer_image_supports_the_commands_with_which_cdis_tests_inspect_disks() {
    // The output must equal that of GNU du and ls, for which those tests were written
    // (tests/utils, `VerifySparse`; import_test.go, upload_test.go).
    let script = "set -e
        cd /dev/shm && mkdir pvc pvc/lost+found && dd if=/dev/zero of=pvc/disk.img bs=1 count=0 seek=1234567 2>/dev/null && echo 4567890 >pvc/other
        du -s --apparent-size -B 1 /dev/shm/pvc/disk.img | cut -f 1
        du -s -B 1 pvc/disk.img | cut -f 1
        ls -I lost+found /dev/shm/pvc | wc -l
        ls -I lost+found pvc
        ls pvc
        stat -c %s pvc/disk.img";
    let ended = run(Image::Importer, Some(&["/bin/sh", "-c", script]), &[]);
    assert_eq!(
        ended.log, "1234567\n0\n2\ndisk.img\nother\ndisk.img\nlost+found\nother\n1234567\n",
        "{}",
        ended.code
    );
}

#[test]
fn the_prep_pod_of_clones_finds_its_shell() {
    // Exactly the commands of contract §4.5.
    let ended = run(Image::Cloner, Some(&["/bin/bash"]), &["-c", "echo", "'hello cdi'"]);
    assert_eq!(ended.code, 0, "{}", ended.log);
    let ended = run(Image::Cloner, Some(&["/bin/sh", "-c", "command -v tar du cut blockdev"]), &[]);
    assert_eq!(ended.log.lines().count(), 4, "{}", ended.log);
}

#[test]
fn only_the_upload_proxy_image_has_no_shell() {
    for image in Image::ALL {
        for shell in ["/bin/sh", "/bin/bash"] {
            let ended = run(image, Some(&[shell, "-c", "exit 3"]), &[]);
            // 127 is the exit code for a command that is not found.
            let code = if image == Image::UploadProxy { 127 } else { 3 };
            assert_eq!(ended.code, code, "{shell} of {}: {}", image.name(), ended.log);
        }
    }
}

#[test]
fn a_worker_has_no_capabilities_and_a_read_only_root() {
    let script = "id -u; grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; touch /x || echo read-only";
    let ended = run(Image::Importer, Some(&["/bin/sh", "-c", script]), &[]);
    let none = "0000000000000000";
    for expected in [
        "107\n",
        &format!("CapEff:\t{none}\nCapBnd:\t{none}\n"),
        "NoNewPrivs:\t1\nSeccomp:\t2\n",
        "read-only\n",
    ] {
        assert!(ended.log.contains(expected), "{expected:?} is not in {}", ended.log);
    }
}

#[test]
fn a_worker_has_the_limits_of_its_pod() {
    // The limits in control groups of either version, as seen from inside the container.
    let script = "cd /sys/fs/cgroup
        cat memory/memory.limit_in_bytes memory.max 2>/dev/null
        cat cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us cpu.max 2>/dev/null | tr '\\n' ' '";
    let ended = run(Image::Importer, Some(&["/bin/sh", "-c", script]), &[]);
    // 600M rounded down to whole pages, and 750m of a period of 100 ms.
    assert_eq!(ended.log, "599998464\n75000 100000 ", "{}", ended.code);
}

/// Writes two dummy programs: the cloner is larger than its image's limit, and the proxy is linked
/// dynamically.
fn write_programs(folder: &Path) {
    for (name, bytes, link) in
        [("cdi-cloner", 25_000_000, "-static"), ("cdi-uploadproxy", 1, "-rdynamic")]
    {
        let source = folder.join(name).with_extension("c");
        let code = format!(
            "const char data[{bytes}] = {{1}}; int main(void) {{ return data[0] != 1; }}\n"
        );
        std::fs::write(&source, code).or_fail("a program's source");
        let program = folder.join(name);
        let words = [link.as_ref(), "-o".as_ref(), program.as_os_str(), source.as_os_str()];
        tools::run("gcc", words);
    }
}

#[test]
#[ignore = "slow: 5 s of CPU time"]
fn a_build_reports_images_above_their_limit_and_dynamically_linked_programs() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let programs = folder.path().join("release");
    std::fs::create_dir(&programs).or_fail("a folder");
    write_programs(&programs);
    let images = folder.path().join("images");
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../build.sh");
    let build = Program::new(build).arg("--programs").arg(&programs).arg("--output").arg(&images);
    let built = build.args(["cloner", "uploadproxy"]).run();
    let said = built.stderr.as_str();
    assert_ne!(built.code(), 0, "{said}");
    for words in ["cdi-cloner has ", "more than 25 MB", "--profile dist"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("cdi-uploadproxy has"), "{said}");
    let is_told_of = |program: &str| said.contains(&format!("{program} is linked dynamically"));
    assert!(is_told_of("cdi-uploadproxy") && !is_told_of("cdi-cloner"), "{said}");
    for image in [Image::Cloner, Image::UploadProxy] {
        let archive = image.archive();
        let archive = images.join(archive.file_name().or_fail("a name"));
        assert!(archive.exists(), "{} is lost: {said}", image.name());
    }
}
