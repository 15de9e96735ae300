//! Imports that fail, with the messages that controllers and users know from upstream.

use std::ffi::OsStr;
use std::path::Path;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::loopdev::LoopDevice;
use testkit::origin::{Framing, Script};
use testkit::process::Program;
use testkit::random::Random;
use testkit::tools;

use super::pod::{MIB, Pod, free_address, serve};

/// The body that upstream's test 3996 gets for the URL of a folder.
const LISTING: &[u8] =
    br#"[{"name":"tinyCore.iso","type":"file","mtime":"Mon, 01 Jan 2024 00:00:00 GMT","size":18874368}]"#;

#[test]
fn a_source_that_cannot_be_opened_has_upstreams_message() {
    let gone =
        serve(Script { expires: [("/disk".to_owned(), (0, 404))].into(), ..Script::new("x") });
    Pod::http(&gone.url("/disk"), &[]).assert_fails_with(
        "Unable to connect to http data source: expected status code 200, got 404. Status: 404 Not Found",
    );
    let pod = Pod::http(&format!("http://{}/disk", free_address()), &[]);
    let finished = pod.run();
    finished.assert_failure(1, "HTTP request errored");
    let message = pod.message().or_fail("a message");
    assert!(
        message.starts_with("Unable to connect to http data source: HTTP request errored: "),
        "{message}"
    );
}

#[test]
#[ignore = "root: loop devices"]
fn impossible_sizes_are_refused_as_too_large() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let device = LoopDevice::new(folder.path(), 4 * MIB, 512);
    let file = folder.path().join("disk.img");
    let import = |source: &str, target: &Path| {
        let program = Program::new(crate::BINARY).arg("import");
        program.arg(source).arg(target).run()
    };
    let most = i64::MAX.unsigned_abs();
    for length in [most - 512, most - 511, most - 1, most, most + 1, u64::MAX - 512, u64::MAX - 2] {
        let origin =
            serve(Script { framing: Framing::Lie(length), ..Script::new(vec![1; 1 << 16]) });
        let url = origin.url("/disk");
        // A file can have this many bytes in whole sectors; up to there, the file system decides.
        let words = match length <= most - 511 {
            true => "file too large",
            false => "no file or device can have more than 9223372036854775296",
        };
        let finished = import(&url, &file);
        let code = if length <= most - 511 { 5 } else { 4 };
        finished.assert_failure(code, words);
        assert!(!file.exists(), "{length}");
        import(&url, device.path()).assert_failure(5, "bytes, and the target has room for ");

        let pod = Pod::http(&url, &[]);
        let finished = pod.run();
        finished.assert_failure(1, "is larger than the reported available storage");
        assert!(!pod.disk().exists(), "{length}");
        let pod = Pod::http(&url, &[]);
        std::os::unix::fs::symlink(device.path(), pod.path("dev/cdi-block-volume"))
            .or_fail("a device");
        pod.run().assert_failure(1, "is larger than the reported available storage");
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn the_message_escapes_deceptive_characters_of_names() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = folder.path().join("image");
    let words =
        "create -q -u -f qcow2 -F raw -b für\u{202e}gpj\u{2028}.raw".split_ascii_whitespace();
    tools::run("qemu-img", words.map(OsStr::new).chain([image.as_os_str(), "1M".as_ref()]));
    let origin = serve(Script::new(std::fs::read(&image).or_fail("the image")));
    let pod = Pod::http(&origin.url("/disk"), &[]);
    let finished = pod.run();
    finished.assert_failure(1, r"für\u{202e}gpj\u{2028}.raw");
    let message = pod.message().or_fail("a message");
    assert!(message.contains(r"für\u{202e}gpj\u{2028}.raw"), "{message:?}");
    for said in [message, finished.stderr] {
        assert!(!said.contains(['\u{202e}', '\u{2028}']), "{said:?}");
    }
}

#[test]
#[ignore = "slow: waits 5 s"]
fn a_bad_environment_is_refused_with_upstreams_messages() {
    for (env, message) in [
        (("IMPORTER_SOURCE", "glance"), "Unknown data source: glance"),
        (
            ("IMPORTER_SOURCE", "vddk"),
            "Unable to process data: environment variable IMPORTER_UUID: is not set or empty",
        ),
        (
            ("IMPORTER_ENDPOINT", ""),
            "Unable to connect to http data source: endpoint \"IMPORTER_ENDPOINT\" is missing or blank",
        ),
        (
            ("IMPORTER_CHECKSUM", "md5:12"),
            "Unable to connect to http data source: invalid checksum: invalid md5 hash length: \
             expected 32 hex characters, got 2",
        ),
        (
            ("IMPORTER_CONTENTTYPE", "tarball"),
            "Unable to process data: Unknown content type: tarball",
        ),
    ] {
        Pod::http("http://127.0.0.1:1/disk", &[env]).assert_fails_with(message);
    }
    let pod = Pod::http(
        "http://127.0.0.1:1/disk",
        &[("IMPORTER_IMAGE_SIZE", "large"), ("IMPORTER_CHECKSUM", "x")],
    );
    pod.run().assert_failure(1, "IMPORTER_CHECKSUM");
    let message = pod.message().or_fail("a message");
    assert!(
        message.starts_with("Unable to process data: environment variable IMPORTER_IMAGE_SIZE: "),
        "{message}"
    );
}

#[test]
fn upstreams_silent_exits_leave_no_message() {
    for env in [
        vec![("PREALLOCATION", "")],
        vec![("PREALLOCATION", "yes")],
        vec![("IMPORTER_SOURCE", "registry"), ("IMPORTER_CONTENTTYPE", "archive")],
    ] {
        let pod = Pod::http("http://127.0.0.1:1/disk", &env);
        let finished = pod.run();
        assert_eq!((finished.code(), pod.message()), (1, None), "{env:?}\n{}", finished.stderr);
        let (name, _) = *env.last().or_fail("a variable");
        assert!(finished.stderr.contains(name), "{}", finished.stderr);
    }
    let pod = Pod::http("http://127.0.0.1:1/disk", &[]);
    std::fs::remove_dir(pod.path("data")).or_fail("unmount the volume");
    let finished = pod.run();
    finished.assert_failure(1, "cannot tell the space of the target");
    assert_eq!(pod.message(), None);
}

/// The message about an object of `bytes` bytes, which is too short for an image.
fn short_header(bytes: usize) -> String {
    format!(
        "Unable to process data: Unable to obtain information about data source: could not process image header: \
         unexpected EOF: {bytes} bytes are not a disk image; is it an error page?"
    )
}

#[test]
#[ignore = "tools: zstd"]
fn bad_images_are_reported_by_the_step_that_fails() {
    let gzip = testkit::tools::filter("gzip", ["-c"], &disk::content(5, MIB));
    let half = gzip.get(..gzip.len() / 2).or_fail("half").to_vec();
    let mut short = vec![0; 511];
    Random::new(1).fill(&mut short);
    let packs_well = testkit::tools::filter("zstd", ["-c"], &[0; 4096]);
    for (body, message) in [
        (
            Vec::new(),
            "Unable to process data: Unable to obtain information about data source: \
             could not process image header: EOF"
                .to_owned(),
        ),
        (LISTING.to_vec(), short_header(LISTING.len())),
        // One object is too short when it is unpacked, the other one when it is packed.
        (testkit::tools::filter("gzip", ["-c"], &short), short_header(short.len())),
        (packs_well.clone(), short_header(packs_well.len())),
        // This object is long enough for a header.
        (
            LISTING.repeat(20),
            format!(
                "Unable to process data: Unable to convert source data to target format: this is text, not a disk: it begins with \
                 \"{}…\" ({} bytes): check the address, and whether it requires a login; to store the bytes as they are, \
                 add the header X-CDI-Workers-Format: verbatim",
                String::from_utf8_lossy(&LISTING[..60]),
                20 * LISTING.len()
            ),
        ),
        (
            half.clone(),
            format!(
                "Unable to process data: Unable to transfer source data to target file: \
                 the gzip stream is truncated after {} compressed bytes",
                half.len()
            ),
        ),
        (
            disk::content(5, 2 * MIB),
            format!(
                "Unable to process data: Unable to convert source data to target format: virtual image size {} is \
                 larger than the reported available storage {MIB}. A larger PVC is required",
                2 * MIB
            ),
        ),
    ] {
        let origin = serve(Script::new(body));
        Pod::http(&origin.url("/disk"), &[("IMPORTER_IMAGE_SIZE", "1Mi")])
            .assert_fails_with(&message);
    }
}

#[test]
#[ignore = "slow: waits 4 s"]
fn a_source_below_the_speed_limit_is_given_up() {
    let origin = serve(Script { rate: Some(20_000), ..Script::new(disk::content(1, MIB)) });
    let env = [("CDI_WORKERS_SPEED_LIMIT", "100000"), ("CDI_WORKERS_SPEED_TIME", "4")];
    let pod = Pod::http(&origin.url("/disk"), &env);
    assert_eq!(pod.run().code(), 1);
    let message = pod.message().or_fail("a message");
    let expected = "Unable to process data: Unable to transfer source data to target file: failed to pull image: \
                    the source is too slow: ";
    assert!(message.starts_with(expected), "{message}");
    assert!(!pod.disk().exists());
}

#[test]
fn a_listing_of_a_folder_is_not_an_archive() {
    let origin = serve(Script::new(LISTING));
    Pod::http(&origin.url("/folder/"), &[("IMPORTER_CONTENTTYPE", "archive")])
        .assert_fails_with(&short_header(LISTING.len()));
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_corrupt_or_dependent_qcow2_is_refused_by_name() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let file = folder.path().join("image.qcow2");
    let path = file.to_str().or_fail("a path of ASCII");
    testkit::tools::run("qemu-img", ["create", "-q", "-f", "qcow2", path, "4M"]);
    let mut corrupt = std::fs::read(&file).or_fail("read the image");
    // `l1_size` of the header (qcow2.rst, bytes 36 to 39).
    corrupt.get_mut(36..40).or_fail("a header").fill(0xff);
    assert!(refusal(corrupt).contains("L1 size too big"));
    let create =
        ["create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", "/etc/passwd", path, "4M"];
    testkit::tools::run("qemu-img", create);
    assert!(refusal(std::fs::read(&file).or_fail("read the image")).contains("/etc/passwd"));
}

/// Upstream's test 2253 serves such a file as a corrupt qcow2: the header of a monolithicSparse
/// VMDK with an enormous capacity, in grains of 3456 sectors.
#[test]
#[ignore = "tools: qemu-img"]
fn a_vmdk_with_an_enormous_directory_is_refused_in_the_words_of_qemu() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let file = folder.path().join("image.vmdk");
    let path = file.to_str().or_fail("a path of ASCII");
    testkit::tools::run("qemu-img", ["create", "-q", "-f", "vmdk", path, "4M"]);
    let mut image = std::fs::read(&file).or_fail("read the image");
    image.truncate(65_405);
    for (at, sectors) in [(12, 0xffff_ffff_0001_u64), (20, 0xd80)] {
        let field = image.get_mut(at..at + 8).or_fail("a header");
        field.copy_from_slice(&sectors.to_le_bytes());
    }
    std::fs::write(&file, &image).or_fail("write the image");
    let info = Program::new("qemu-img").args(["info", path]).run();
    info.assert_failure(1, "L1 size too big");
    assert!(refusal(image).contains("L1 size too big"));
}

/// Returns the message of a pod whose image is refused when it is converted.
fn refusal(image: Vec<u8>) -> String {
    let origin = serve(Script::new(image));
    let pod = Pod::http(&origin.url("/disk"), &[]);
    let finished = pod.run();
    assert_eq!(finished.code(), 1, "{}", finished.stderr);
    let message = pod.message().or_fail("a message");
    assert!(
        message.starts_with("Unable to process data: Unable to convert source data to target"),
        "{message}"
    );
    message
}

#[test]
fn a_wrong_checksum_is_final_and_leaves_no_disk() {
    let content = disk::content(5, MIB);
    let origin = serve(Script::new(content.clone()));
    let zeros = format!("md5:{}", "0".repeat(32));
    let pod = Pod::http(&origin.url("/disk"), &[("IMPORTER_CHECKSUM", &zeros)]);
    let mut digest = stream::digest::RunningDigest::new(stream::digest::DigestAlgorithm::Md5);
    digest.update(&content);
    pod.assert_succeeds_with(&format!(
        "{{\"message\":\"Unable to process data: Unable to transfer source data to target file: checksum validation \
         failed: checksum mismatch: expected {zeros}, calculated {}\"}}",
        digest.finish_digest()
    ));
    assert!(!pod.disk().exists());
}

#[test]
fn klog_flags_are_accepted_and_unknown_ones_are_a_usage_error() {
    let importer = || Program::new(crate::BINARY);
    importer().arg("-nonsense").run().assert_failure(2, "flag provided but not defined: -nonsense");
    let pod = Pod::new(&[("IMPORTER_SOURCE", "glance")]);
    let bare = pod.env.iter().fold(importer(), |program, (name, value)| program.env(name, value));
    bare.run().assert_failure(1, "Unknown data source: glance");
}
