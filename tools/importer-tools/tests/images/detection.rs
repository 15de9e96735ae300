//! `cdi-image-size-detection` as CDI's controller runs it.

use std::path::Path;

use rustix::process::Signal;
use tempfile::TempDir;
use testkit::fail::OrFail;
use testkit::loopdev::LoopDevice;
use testkit::process::{Finished, Program};

use super::samples;

fn program() -> Program {
    Program::new(crate::BINARY).named("cdi-image-size-detection")
}

/// A folder that stands in for the file system of a pod.
struct Pod(TempDir);

impl Pod {
    fn new() -> Self {
        let pod = Self(tempfile::tempdir().or_fail("a folder"));
        std::fs::create_dir(pod.0.path().join("dev")).or_fail("dev");
        pod
    }

    fn program(&self, arguments: &[&str]) -> Program {
        let program = program().env("CDI_WORKERS_TEST_ROOT", self.0.path());
        program.args(arguments.iter().copied())
    }

    fn run(&self, arguments: &[&str]) -> Finished {
        self.program(arguments).run()
    }

    fn detect(&self, image: &Path) -> Finished {
        self.run(&["-image-path", &image.display().to_string()])
    }

    fn message(&self) -> Option<String> {
        std::fs::read_to_string(self.0.path().join("dev/termination-log")).ok()
    }
}

#[test]
#[ignore = "tools: qemu-img, qemu-io, xz"]
fn the_size_matches_qemu_img_for_every_format() {
    let pod = Pod::new();
    samples::each(|image, case| {
        pod.detect(image).assert_success(case);
        let size = samples::qemu(image, case)["virtual-size"].as_u64().or_fail(case);
        assert_eq!(pod.message().or_fail(case), size.to_string(), "{case}");
    });
}

#[test]
#[ignore = "root: loop devices"]
fn the_size_of_a_device_is_detected() {
    let (pod, folder) = (Pod::new(), tempfile::tempdir().or_fail("a folder"));
    let device = LoopDevice::new(folder.path(), 7 << 20, 512);
    let path = device.path().display().to_string();
    pod.run(&["-image-path", &path, "-scheme=file://", "-v=1"]).assert_success("a device");
    assert_eq!(pod.message().or_fail("a message"), (7 << 20).to_string());
}

#[test]
#[ignore = "tools: qemu-img"]
fn failures_have_their_exit_codes_and_leave_no_size() {
    let pod = Pod::new();
    let missing = pod.0.path().join("missing");
    pod.run(&[]).assert_failure(1, "One or more mandatory parameters are missing");
    pod.run(&["-image-path="]).assert_failure(1, "mandatory");
    let path = missing.display().to_string();
    pod.run(&["-image-path", &path, "-scheme", "https://"]).assert_failure(1, "\"https://\"");
    pod.run(&["-image-size=1"]).assert_failure(2, "not defined: -image-size");
    samples::each_broken(|image, case| {
        let refused = pod.detect(image);
        assert_eq!(refused.code(), 2, "{case}: {}", refused.stderr);
        assert!(
            refused.stderr.contains("Unable to extract information from '"),
            "{}",
            refused.stderr
        );
        assert_ne!(samples::qemu_info(&[], image).code(), 0, "{case}");
    });
    for path in [&missing, pod.0.path(), Path::new("/dev/null")] {
        pod.detect(path).assert_failure(3, "Unable to extract information from '");
    }
    assert_eq!(pod.message(), None);
    std::fs::write(&missing, "disk").or_fail("a disk");
    std::fs::remove_dir(pod.0.path().join("dev")).or_fail("no place for the message");
    pod.detect(&missing).assert_failure(4, "cannot write the termination message");
}

#[test]
fn a_signal_ends_the_program_even_if_the_volume_hangs() {
    let pod = Pod::new();
    let image = pod.0.path().join("disk.img");
    std::fs::write(&image, "disk").or_fail("a disk");
    // Like a volume that hangs: nothing reads the pipe, so that opening it for writing blocks.
    let message = pod.0.path().join("dev/termination-log");
    let made = Program::new("mkfifo").arg(&message).run();
    made.assert_success("mkfifo");
    let running = pod.program(&["-v=1", "-image-path", &image.display().to_string()]).start();
    running.wait_for_handlers();
    running.signal(Signal::TERM);
    let finished = running.wait();
    finished.assert_failure(143, "received SIGTERM: stopping");
}

#[test]
fn help_and_version_are_printed() {
    let version = program().arg("--version").run();
    version.assert_success("version");
    assert!(version.stdout.starts_with("cdi-image-size-detection 0."), "{}", version.stdout);
    let help = program().arg("-help").run();
    help.assert_success("help");
    assert!(
        help.stderr.contains("-image-path") && help.stderr.contains("-scheme"),
        "{}",
        help.stderr
    );
}
