//! Responses to requests.

use rustix::process::Signal;
use testkit::disk;
use testkit::fail::OrFail;

use super::scene::Scene;

/// Size of the disk: some chunks and a bit, so that responses have more than one chunk.
const BYTES: u64 = (1 << 20) + 4711;

#[test]
fn curl_gets_the_ranges_that_it_requests() {
    let content = disk::content(1, BYTES);
    let scene = Scene::new(&[("disk.img", &content)]);
    let running = scene.start();
    let last = BYTES - 1;
    for (range, status, bytes) in [
        ("0-0", 206, 0..1),
        ("1-524288", 206, 1..524_289),
        ("1000000-", 206, 1_000_000..BYTES),
        ("-1000", 206, BYTES - 1000..BYTES),
        ("5-99999999999", 206, 5..BYTES),
        ("0-1,5-6", 200, 0..BYTES),
        ("7-3", 200, 0..BYTES),
        ("x", 200, 0..BYTES),
        (&format!("{BYTES}-"), 416, 0..0),
        ("-0", 416, 0..0),
    ] {
        let header = format!("Range: bytes={range}");
        let (head, body) = scene.curl(&["-H", &header], "/disk.img");
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{range}: {head}");
        let expected = content
            .get(
                usize::try_from(bytes.start).or_fail(range)
                    ..usize::try_from(bytes.end).or_fail(range),
            )
            .or_fail(range);
        assert!(body == expected, "{range}: {} bytes", body.len());
        let said = match status {
            206 => format!("content-range: bytes {}-{}/{BYTES}\r\n", bytes.start, bytes.end - 1),
            416 => format!("content-range: bytes */{BYTES}\r\n"),
            _ => format!("content-length: {BYTES}\r\n"),
        };
        assert!(head.contains(&said), "{range}: {head}");
    }
    let (head, _) = scene.curl(&["-H", &format!("Range: bytes={last}-{last}")], "/disk.img");
    assert!(head.contains("accept-ranges: bytes\r\n"), "{head}");
    running.signal(Signal::TERM);
    running.wait();
}

#[test]
fn a_range_of_another_version_gets_the_whole_file() {
    let content = disk::content(1, 10_000);
    let scene = Scene::new(&[("disk.img", &content)]);
    let running = scene.start();
    let (head, body) = scene.curl(&["--head"], "/disk.img");
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    // With `--head`, curl writes the head into the file for the body as well.
    assert_eq!(body.to_ascii_lowercase(), head.as_bytes());
    let value = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.or_fail(name).trim().to_owned()
    };
    assert_eq!(value("content-length"), "10000");
    assert_eq!(value("content-type"), "application/octet-stream");
    let tag = value("etag");
    assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
    for (validator, status) in [
        (tag.as_str(), 206),
        ("\"other\"", 200),
        ("W/\"other\"", 200),
        ("Mon, 01 Jan 2001 00:00:00 GMT", 200),
    ] {
        let condition = format!("If-Range: {validator}");
        let (head, _) = scene.curl(&["-H", "Range: bytes=5-", "-H", &condition], "/disk.img");
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{validator}: {head}");
    }
    running.signal(Signal::TERM);
    running.wait();
}

#[test]
fn nothing_but_the_disk_can_be_read() {
    let name = "a ü%?#&+.img";
    let scene = Scene::new(&[(name, b"disk")]);
    std::fs::create_dir(scene.path("disk/more")).or_fail("a folder");
    std::fs::write(scene.path("disk/more/file"), "secret").or_fail("a file");
    std::fs::write(scene.path("secret"), "secret").or_fail("a file");
    let running = scene.start();
    let (_, body) = scene.curl(&[], "/a%20%C3%BC%25%3f%23%26+.img");
    assert_eq!(body, b"disk");
    for path in [
        "/",
        "/disk.img",
        "/more/file",
        "/../secret",
        "/%2e%2e/secret",
        "/more/../a%20%C3%BC%25%3F%23&+.img",
        "/..%2fsecret",
        "//a%20%C3%BC%25%3F%23&+.img",
        "/a%20%C3%BC%25%3F%23&+.img/",
        "/%00",
        "/info/",
    ] {
        let (head, body) = scene.curl(&[], path);
        assert!(head.starts_with("http/1.1 404 "), "{path}: {head}");
        assert_eq!(body, b"404 page not found\n", "{path}");
    }
    for method in ["POST", "PUT", "DELETE"] {
        let (head, _) = scene.curl(&["-X", method], "/info");
        assert!(head.starts_with("http/1.1 405 ") && head.contains("allow: get, head"), "{head}");
    }
    running.signal(Signal::TERM);
    running.wait();
}

#[test]
fn a_file_name_that_is_not_utf_8_is_served() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let scene = Scene::new(&[]);
    let file = scene.path("disk").join(OsStr::from_bytes(b"disk\xff.img"));
    std::fs::write(file, b"disk").or_fail("a file");
    let running = scene.start();
    assert_eq!(std::fs::read(scene.ready()).or_fail("the name"), b"disk\xff.img");
    assert_eq!(scene.curl(&[], "/disk%FF.img").1, b"disk");
    std::fs::write(scene.done(), "").or_fail("the done file");
    running.wait().assert_success("done");
}

#[test]
fn info_lists_the_environment_of_the_container() {
    let scene = Scene::new(&[("disk.img", b"disk")]);
    let label = "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE";
    let running = scene.begin(scene.program().env(label, "fe\"do\\ra=1"));
    let (head, body) = scene.curl(&[], "/info");
    assert!(head.contains("content-type: application/json"), "{head}");
    let info: serde_json::Value = serde_json::from_slice(&body).or_fail("JSON");
    let variables = info["env"].as_array().or_fail("a list");
    let expected = format!("{label}=fe\"do\\ra=1");
    assert!(variables.iter().any(|variable| variable == expected.as_str()), "{info}");
    running.signal(Signal::TERM);
    running.wait();
}

#[test]
fn only_the_pod_itself_can_connect() {
    let scene = Scene::new(&[("disk.img", b"disk")]);
    let running = scene.start();
    let port = format!(":{:04X}", scene.address.port());
    let mut listening = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        // A machine without IPv6 has no such table.
        let table = std::fs::read_to_string(table).unwrap_or_default();
        listening.extend(table.lines().filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (local, state) = (words.next()?, words.nth(1)?);
            (local.ends_with(&port) && state == "0A").then(|| local.to_owned())
        }));
    }
    // 127.0.0.1 and ::1 as proc(5) writes them.
    let local = ["0100007F", "00000000000000000000000001000000"].map(|ip| format!("{ip}{port}"));
    assert!(
        !listening.is_empty() && listening.iter().all(|address| local.contains(address)),
        "{listening:?}"
    );
    running.signal(Signal::TERM);
    running.wait();
}

#[test]
#[ignore = "tools: strace"]
fn the_server_opens_no_file_of_its_image_but_the_disk() {
    let scene = Scene::new(&[("disk.img", b"disk")]);
    let log = scene.path("trace");
    let options = ["-f", "-qq", "-e", "trace=open,openat,openat2", "-o", &log.to_string_lossy()];
    let running = scene.begin(scene.program().under("strace", options));
    assert_eq!(scene.curl(&[], "/disk.img").1, b"disk");
    std::fs::write(scene.done(), "").or_fail("the done file");
    running.wait().assert_success("traced");
    let trace = std::fs::read_to_string(&log).or_fail("the trace");
    let folder = scene.path("").display().to_string();
    let is_own = |line: &&str| line.contains(&folder);
    assert!(trace.lines().filter(is_own).count() >= 3, "{trace}");
    for line in trace.lines().filter(|line| !is_own(line) && line.contains('"')) {
        // The dynamic linker, which a static program does not have, and the kernel's own files.
        let allowed = ["\"/lib", "\"/usr/lib", "\"/etc/ld.so", ".so", "\"/proc/", "\"/sys/"];
        assert!(allowed.iter().any(|part| line.contains(part)), "{line}");
    }
}
