//! Flags in the notation of Go, and mistakes in them.

use super::pod::{FATAL, Pod};

const BOTH: [&str; 2] = ["openstack-populator", "ovirt-populator"];

#[test]
fn help_lists_every_flag_and_succeeds() {
    for name in BOTH {
        for flag in ["--help", "-h"] {
            let finished = Pod::new(name, &[flag], &[]).program().run();
            finished.assert_success(flag);
            for flag in ["volume-path", "owner-uid", "pvc-size", "secret-name"] {
                assert!(
                    finished.stderr.contains(&format!("\n  -{flag} text\n")),
                    "{}",
                    finished.stderr
                );
            }
        }
    }
}

#[test]
fn unknown_and_missing_flags_are_named() {
    for name in BOTH {
        let unknown = Pod::new(name, &["--nonsense=1"], &[]).program().run();
        unknown.assert_failure(2, "flag provided but not defined: -nonsense");
        Pod::new(name, &["-volume-path", ""], &[])
            .with("--volume-path=")
            .assert_refused("One or more mandatory parameters are missing: -volume-path");
        Pod::new(name, &[], &[])
            .with("--pvc-size=-1")
            .assert_refused("invalid value \"-1\" for flag -pvc-size");
    }
    let openstack = Pod::new(BOTH[0], &[], &[]);
    openstack.assert_refused("One or more mandatory parameters are missing: -endpoint, -image-id");
    let ovirt = Pod::new(BOTH[1], &["-engine-url", "https://engine.example"], &[]);
    ovirt.assert_refused("One or more mandatory parameters are missing: -disk-id");
    ovirt.with("--pvc-size=0").assert_refused("-pvc-size must be above 0");
}

#[test]
fn a_missing_device_is_not_created_as_a_file() {
    let flags = ["--engine-url=https://engine.invalid", "--disk-id=1"];
    let pod = Pod::new(BOTH[1], &flags, &[("user", "u"), ("password", "p")]);
    let device = pod.folder().join("block");
    let pod = pod.with(format!("--volume-path={}", device.display()));
    pod.assert_refused("not a block device; the only file name allowed is disk.img");
    assert!(!device.exists());
}

#[test]
fn a_secret_that_lacks_keys_is_refused() {
    let ovirt = Pod::new(BOTH[1], &["--engine-url=http://127.0.0.1:1", "--disk-id=1"], &[]);
    let finished = ovirt.program().run();
    finished.assert_failure(FATAL, "oVirt needs a user name and a password");
    let openstack = Pod::new(BOTH[0], &["--endpoint=http://127.0.0.1:1", "--image-id=1"], &[]);
    openstack.assert_refused("environment variable username: is not set or empty");
}
