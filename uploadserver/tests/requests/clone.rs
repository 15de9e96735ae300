//! Clones: snappy-framed devices and tar streams, as CDI's cloner sends them.

use std::fs::{self};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use codec::encode::{CompressionRule, Encoding, PIECE_BYTES, VolumePiece};
use stream::digest::{DigestAlgorithm, RunningDigest};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::framing::chunked;
use testkit::https::{Request, Response};
use testkit::loopdev::{DIRT, LoopDevice};
use testkit::tools;
use testkit::upload_pod::{Server, UploadPod};

use crate::BINARY;

const MIB: u64 = 1 << 20;

const BLOCK: &str = "blockdevice-clone";
const FILESYSTEM: &str = "filesystem-clone";

/// Returns `bytes` in the snappy framing format.
fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).or_fail("compress");
    encoder.into_inner().ok().or_fail("finish the frames")
}

/// Packs a volume like the cloner: its top-level names, with holes.
fn tar(folder: &Path) -> Vec<u8> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .or_fail(folder.display())
        .map(|entry| entry.or_fail("an entry").file_name())
        .collect();
    names.sort();
    let options = ["-c", "-S", "-f", "-", "-C"].map(Into::into);
    let arguments = options.into_iter().chain([folder.into()]).chain(names);
    tools::filter("tar", arguments, &[])
}

fn send(server: &Server, path: &str, content_type: &str, stream: &[u8]) -> Response {
    let request = Request::post(path).chunked().header("x-cdi-content-type", content_type);
    server.exchange(&request, &chunked(stream, 32 << 10, &[]))
}

/// Clones `stream`, and fails the test unless the server succeeds and reports whether it
/// preallocated.
#[track_caller]
fn clone(pod: &UploadPod, content_type: &str, stream: &[u8], preallocated: bool) {
    let server = pod.start();
    send(&server, "/v1beta1/upload", content_type, stream).assert_uploaded();
    server.wait().assert_success(content_type);
    let message =
        format!(r#"{{"preallocationApplied":{preallocated},"message":"Clone Complete"}}"#);
    assert_eq!(pod.message(), Some(message));
}

/// Returns a disk of 16 MiB, of which an eighth is data, including the first and the last sector.
fn sparse_disk() -> Vec<u8> {
    let mut content = disk::sparse_content(5, 16 * MIB, 8);
    if let Some(last) = content.last_mut() {
        *last = 1;
    }
    content
}

#[test]
#[ignore = "root: loop devices"]
fn a_device_or_a_disk_in_a_volume_is_cloned_to_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let source = tempfile::tempdir().unwrap();
    let content = sparse_disk();
    fill_volume(source.path(), &content);
    // None of these is the disk, although their names resemble it.
    fs::create_dir(source.path().join("a-disk.img-folder")).unwrap();
    fs::write(source.path().join("disk.img.bak"), "old").unwrap();
    for (content_type, bytes) in [(BLOCK, &content), (FILESYSTEM, &tar(source.path()))] {
        // The target may be larger; what lies behind the clone is not defined.
        for (length, sector) in [(16 * MIB, 512), (16 * MIB, 4096), (17 * MIB, 512)] {
            let device = LoopDevice::new(folder.path(), length, sector);
            let pod = UploadPod::new(BINARY).block(device.path());
            clone(&pod, content_type, &framed(bytes), false);
            let disk = fs::read(device.path()).unwrap();
            assert!(disk.starts_with(&content), "{content_type}: {length} bytes differ");
        }
        let device = LoopDevice::new(folder.path(), 16 * MIB, 512);
        let pod = UploadPod::new(BINARY).block(device.path());
        let server = pod.start();
        let stream = in_zstd(bytes);
        send_encoded(&server, content_type, "zstd", &stream, &stream).assert_uploaded();
        server.wait().assert_success(content_type);
        assert!(fs::read(device.path()).unwrap() == content, "{content_type} in zstd");
    }
}

#[test]
fn a_device_is_cloned_to_a_file_with_holes_unless_it_is_preallocated() {
    let content = sparse_disk();
    for preallocate in [false, true] {
        let pod = UploadPod::new(BINARY).env("PREALLOCATION", &preallocate.to_string());
        // Left by an attempt of an earlier container.
        fs::write(pod.disk(), vec![0xEE; 20 << 20]).unwrap();
        // The message says false even for a preallocated clone.
        clone(&pod, BLOCK, &framed(&content), false);
        assert!(fs::read(pod.disk()).unwrap() == content);
        let (data, allocated) = (disk::data_bytes(&pod.disk()), disk::allocated_bytes(&pod.disk()));
        let expected = if preallocate { 16 * MIB..17 * MIB } else { data..data + MIB };
        assert!(expected.contains(&allocated), "{allocated} bytes are allocated for {data}");
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_device_with_the_bytes_of_an_image_is_not_converted() {
    let folder = tempfile::tempdir().unwrap();
    let qcow2 = folder.path().join("image.qcow2");
    let file = qcow2.to_str().unwrap();
    tools::run("qemu-img", ["create", "-q", "-f", "qcow2", file, "64M"]);
    let mut content = fs::read(&qcow2).unwrap();
    content.resize(1 << 20, 0);
    let gzip = tools::filter("gzip", ["-c"], &content);
    for bytes in [content, gzip] {
        let pod = UploadPod::new(BINARY);
        clone(&pod, BLOCK, &framed(&bytes), false);
        let disk = fs::read(pod.disk()).unwrap();
        assert!(disk.starts_with(&bytes), "the guest's bytes were read as an image");
    }
}

/// Fills a volume with a sparse disk and with other kinds of files.
fn fill_volume(folder: &Path, content: &[u8]) {
    disk::write_sparse(&folder.join("disk.img"), content);
    fs::create_dir_all(folder.join("nested/deeper")).or_fail("a folder");
    fs::write(folder.join("nested/deeper/notes"), "text").or_fail("a file");
    fs::write(folder.join("nested/empty"), "").or_fail("a file");
    let script = folder.join("nested/script");
    fs::write(&script, "#!/bin/sh").or_fail("a file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o751)).or_fail("a mode");
    fs::hard_link(&script, folder.join("nested/same-script")).or_fail("a hard link");
    std::os::unix::fs::symlink("nested/script", folder.join("link")).or_fail("a link");
    fs::write(folder.join("n".repeat(200)), "a name that needs an extension").or_fail("a file");
}

/// Returns names, types, modes, sizes, modification times and link targets below `folder`, one
/// line each.
fn listing(folder: &Path) -> String {
    let format = "%P %y %m %s %Ts %l %n\\n";
    let arguments = ["-mindepth", "1", "-not", "-type", "d", "-printf", format].map(AsRef::as_ref);
    let printed = tools::run("find", [folder.as_os_str()].into_iter().chain(arguments));
    let folders = ["-mindepth", "1", "-type", "d", "-printf", "%P %m\\n"].map(AsRef::as_ref);
    let printed = printed + &tools::run("find", [folder.as_os_str()].into_iter().chain(folders));
    let mut lines: Vec<_> = printed.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

#[test]
fn a_volume_is_cloned_to_a_volume_with_its_holes() {
    let source = tempfile::tempdir().unwrap();
    let content = sparse_disk();
    fill_volume(source.path(), &content);
    let pod = UploadPod::new(BINARY);
    clone(&pod, FILESYSTEM, &framed(&tar(source.path())), true);
    let target = pod.path("data");
    assert_eq!(listing(&target), listing(source.path()));
    for name in ["disk.img", "nested/deeper/notes", "nested/same-script"] {
        let (source, target) = (source.path().join(name), target.join(name));
        assert!(fs::read(&source).unwrap() == fs::read(&target).unwrap(), "{name} differs");
    }
    let (from, to) = (
        disk::allocated_bytes(&source.path().join("disk.img")),
        disk::allocated_bytes(&pod.disk()),
    );
    assert!(to <= from + MIB, "{to} bytes are allocated, {from} were");
}

/// Upstream takes the first file whose name resembles that of the disk.
#[test]
#[ignore = "root: loop devices"]
fn a_volume_without_a_disk_or_with_a_doubtful_one_is_not_cloned_to_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(folder.path(), 4 * MIB, 512);
    let pod = UploadPod::new(BINARY).block(device.path());
    let server = pod.start();
    for (names, sentence) in [
        (&["before-disk.img.bak", "disk.img"][..], "`before-disk.img.bak`"),
        (&["notes"], "no disk image found in tar"),
    ] {
        let source = tempfile::tempdir().unwrap();
        for name in names {
            fs::write(source.path().join(name), disk::content(1, MIB)).unwrap();
        }
        let response = send(&server, "/v1beta1/upload", FILESYSTEM, &framed(&tar(source.path())));
        assert_eq!(response.status, 400, "{response:?}");
        assert!(response.text().contains(sentence), "{response:?}");
        assert!(disk::begins_with_only(&[0, DIRT], device.path(), MIB));
    }
    let content = disk::content(1, 4 * MIB);
    send(&server, "/v1beta1/upload", BLOCK, &framed(&content)).assert_uploaded();
    server.wait().assert_success("clone");
    assert!(fs::read(device.path()).unwrap() == content);
}

#[test]
fn a_broken_clone_leaves_the_server_ready_and_the_volume_clean() {
    let source = tempfile::tempdir().unwrap();
    let content = sparse_disk();
    fill_volume(source.path(), &content);
    let tar = tar(source.path());
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    for (content_type, bytes) in [(BLOCK, &content), (FILESYSTEM, &tar)] {
        let good = framed(bytes);
        for damage in [
            // A changed byte in the middle, which the CRC-32C of its chunk reveals.
            flipped(&good, good.len() / 2),
            // Truncated in the middle of a chunk.
            good[..good.len() - 1000].to_vec(),
            // A wrong stream identifier.
            flipped(&good, 4),
            bytes.clone(),
        ] {
            let response = send(&server, "/v1beta1/upload", content_type, &damage);
            assert_eq!(response.status, 400, "{response:?}");
            assert!(response.text().starts_with("Saving stream failed: "), "{response:?}");
            assert_eq!(pod.data_names(), [""; 0], "{content_type}: {}", response.text());
        }
    }
    send(&server, "/v1beta1/upload", FILESYSTEM, &framed(&tar)).assert_uploaded();
    server.wait().assert_success("clone");
    assert_eq!(listing(&pod.path("data")), listing(source.path()));
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 0x10;
    bytes
}

/// Returns `bytes` in zstd, with every other piece compressed.
fn in_zstd(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = Encoding::Zstd(CompressionRule::IfSlow).new_encoder();
    let mut stream = Vec::new();
    for (index, part) in bytes.chunks(PIECE_BYTES).enumerate() {
        let piece = VolumePiece::Data(part.to_vec().into());
        for part in encoder.encode_piece(piece, index % 2 == 0) {
            stream.extend_from_slice(&part);
        }
    }
    stream
}

fn checksum(bytes: &[u8]) -> String {
    let mut digest = RunningDigest::new(DigestAlgorithm::Crc64Nvme);
    digest.update(bytes);
    digest.finish_digest()
}

/// Sends a clone in `encoding`, with the checksum of `sent` as its trailer.
fn send_encoded(
    server: &Server,
    content_type: &str,
    encoding: &str,
    stream: &[u8],
    sent: &[u8],
) -> Response {
    let request = Request::post("/v1beta1/upload")
        .chunked()
        .header("x-cdi-content-type", content_type)
        .header("x-cdi-workers-clone", encoding)
        .header("x-cdi-checksum", "crc64nvme")
        .header("Trailer", "x-cdi-checksum");
    let trailers = [("x-cdi-checksum", &*checksum(sent))];
    server.exchange(&request, &chunked(stream, 32 << 10, &trailers))
}

#[test]
fn zstd_is_offered_to_cloners_and_accepted() {
    let source = tempfile::tempdir().unwrap();
    let content = sparse_disk();
    fill_volume(source.path(), &content);
    let tar = tar(source.path());
    for (content_type, bytes) in [(BLOCK, &content), (FILESYSTEM, &tar)] {
        let pod = UploadPod::new(BINARY);
        let server = pod.start();
        let question = Request::new("HEAD", "/v1beta1/upload-async");
        let answer = server.exchange(&question, &[]);
        assert_eq!((answer.status, answer.header("x-cdi-workers-clone")), (200, None));
        // Only cloners are offered zstd. Older ones of ours ask for `frames-1`, do not find it in
        // the answer, and send snappy.
        for known in ["zstd", "frames-1"] {
            let offer =
                server.exchange(&question.clone().header("x-cdi-workers-clone", known), &[]);
            assert_eq!((offer.status, offer.header("x-cdi-workers-clone")), (200, Some("zstd")));
        }
        let (half, other_half) = bytes.split_at(bytes.len() / 2);
        let (half, other_half) = (in_zstd(half), in_zstd(other_half));
        let good = [&half[..], &other_half].concat();
        for damage in [
            flipped(&good, good.len() / 2),
            flipped(&good, good.len() - 1),
            flipped(&good, 4),
            good[..good.len() - 1000].to_vec(),
            // Frames are missing, repeated or in another order, which only the checksum reveals.
            half.clone(),
            [&half[..], &half, &other_half].concat(),
            [&other_half[..], &half].concat(),
            [&good[..], b"x"].concat(),
            framed(bytes),
        ] {
            let response = send_encoded(&server, content_type, "zstd", &damage, &good);
            assert!([400, 500].contains(&response.status), "{response:?}");
            assert_eq!(pod.data_names(), [""; 0], "{content_type}: {}", response.text());
        }
        send_encoded(&server, content_type, "zstd", &good, &good).assert_uploaded();
        server.wait().assert_success(content_type);
        assert!(fs::read(pod.disk()).unwrap() == content);
    }
}

/// Without the trailer, a clone could not be told from one whose last frames are missing.
#[test]
fn a_clone_must_be_synchronous_in_a_known_encoding_with_a_checksum() {
    let content = sparse_disk();
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    let stream = in_zstd(&content);
    let (sync, background) = ("/v1beta1/upload", "/v1beta1/upload-async");
    for (path, content_type, encoding, checksum, status, sentence) in [
        (background, BLOCK, None, false, 500, "Saving stream failed: async clone not supported"),
        (background, FILESYSTEM, None, false, 500, "async clone not supported"),
        (sync, BLOCK, Some("zstd"), false, 400, "a clone in zstd needs x-cdi-checksum"),
        (sync, BLOCK, Some("zstd"), true, 400, "the announced checksum was not sent"),
        (sync, BLOCK, Some("frames-1"), true, 400, "x-cdi-workers-clone must be zstd"),
        (sync, FILESYSTEM, Some(""), true, 400, "a clone in \"\" is not supported"),
        (sync, "", Some("zstd"), true, 400, "x-cdi-workers-clone is for clones"),
    ] {
        let mut request = Request::post(path).chunked().header("x-cdi-content-type", content_type);
        if let Some(encoding) = encoding {
            request = request.header("x-cdi-workers-clone", encoding);
        }
        if checksum {
            request =
                request.header("x-cdi-checksum", "crc64nvme").header("Trailer", "x-cdi-checksum");
        }
        let response = server.exchange(&request, &chunked(&stream, 32 << 10, &[]));
        assert_eq!(response.status, status, "{response:?}");
        assert!(response.text().contains(sentence), "{response:?}");
        assert_eq!(pod.data_names(), [""; 0]);
    }
    server.post_last("/v1beta1/upload", &content);
}
