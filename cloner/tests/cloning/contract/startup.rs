//! The start-up script, flags and the environment.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::{Finished, Program};
use testkit::tools;

use super::{BINARY, FATAL, MIB};

/// Runs the program under the name of CDI's start-up script, with only these variables.
fn script(folder: &Path, variables: &[(&str, &str)]) -> Finished {
    let link = folder.join("cloner_startup.sh");
    if !link.exists() {
        symlink(BINARY, &link).or_fail("a link");
    }
    let program = Program::new(link);
    variables.iter().fold(program, |program, (name, value)| program.env(name, *value)).run()
}

#[test]
fn the_script_needs_its_variables_and_prints_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let disk = folder.path().join("disk");
    File::create(&disk).unwrap().set_len(7 * MIB).unwrap();
    let disk = disk.to_str().unwrap();
    for (variables, code, printed, message) in [
        (&[][..], 1, "", "VOLUME_MODE missing"),
        (&[("VOLUME_MODE", "block")], 1, "", "MOUNT_POINT missing"),
        (
            &[("VOLUME_MODE", "tape"), ("MOUNT_POINT", path)],
            1,
            &*format!("VOLUME_MODE=tape\nMOUNT_POINT={path}\n"),
            "it must be block or filesystem",
        ),
        (
            &[("VOLUME_MODE", "block"), ("MOUNT_POINT", disk)],
            FATAL,
            &*format!("VOLUME_MODE=block\nMOUNT_POINT={disk}\nUPLOAD_BYTES={}\n", 7 * MIB),
            "Error getting env var CLIENT_KEY",
        ),
    ] {
        let finished = script(folder.path(), variables);
        finished.assert_failure(code, message);
        assert_eq!(finished.stdout, printed);
    }
}

#[test]
fn the_size_estimate_matches_du() {
    let folder = tempfile::tempdir().unwrap();
    let volume = folder.path().join("volume");
    fs::create_dir_all(volume.join("nested")).unwrap();
    fs::write(volume.join("nested/file"), disk::content(1, MIB + 5)).unwrap();
    fs::hard_link(volume.join("nested/file"), volume.join("same")).unwrap();
    File::create(volume.join("disk.img")).unwrap().set_len(50 * MIB).unwrap();
    let mount = volume.to_str().unwrap();
    let estimate = |preallocation: &[(&str, &str)]| {
        let variables = [("VOLUME_MODE", "filesystem"), ("MOUNT_POINT", mount)];
        let finished = script(folder.path(), &[&variables, preallocation].concat());
        let line = finished.stdout.lines().find_map(|line| line.strip_prefix("UPLOAD_BYTES="));
        line.unwrap().parse::<u64>().unwrap()
    };
    let du = |option: &str| {
        let printed = tools::run("du", ["-s", "--block-size=1", option, mount]);
        printed.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    for preallocation in [&[][..], &[("PREALLOCATION", "")], &[("PREALLOCATION", "false")]] {
        assert_eq!(estimate(preallocation), du("--one-file-system"));
    }
    // Some versions of `du` count the sizes of the directories themselves, others do not.
    let apparent = du("--apparent-size");
    let directories =
        volume.metadata().unwrap().size() + volume.join("nested").metadata().unwrap().size();
    let ours = estimate(&[("PREALLOCATION", "true")]);
    assert!(ours == apparent || ours == apparent + directories, "{ours}, du says {apparent}");
}

#[test]
fn flags_are_checked_first_and_variables_in_upstreams_order() {
    let block = ["-content-type", "blockdevice-clone", "-mount", "/dev/null"];
    let run = |args: &[&str], variables: &[&str]| {
        let program = Program::new(BINARY).args(args.iter().copied());
        variables.iter().fold(program, |program, name| program.env(name, "x")).run()
    };
    for (args, code, message) in [
        (&["-v=3"][..], FATAL, "Invalid content-type \"\""),
        (&["-content-type", "tape", "-mount", "/x"], FATAL, "Invalid content-type \"tape\""),
        (&["--content-type=filesystem-clone"], FATAL, "Invalid mount \"\""),
        (&["-upload-bytes", "many"], 2, "-upload-bytes"),
        (&["-pod"], 2, "flag provided but not defined: -pod"),
        (&["-help"], 0, "-upload-bytes"),
    ] {
        run(args, &[]).assert_failure(code, message);
    }
    let mandatory = ["CLIENT_KEY", "CLIENT_CERT", "SERVER_CA_CERT", "UPLOAD_URL"];
    for (index, name) in mandatory.iter().enumerate() {
        run(&block, &mandatory[..index])
            .assert_failure(FATAL, &format!("Error getting env var {name}"));
    }
    run(&block, &mandatory).assert_failure(FATAL, "Error reading the volume");
}
