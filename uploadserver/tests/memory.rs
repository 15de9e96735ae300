//! Checks that the memory of an upload is bounded, that the disk is complete soon after the last
//! byte, and that the server answers while it decodes.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stream::memory::RESERVE_BYTES;
use testkit::bombs;
use testkit::cases::check_all;
use testkit::cgroup::MemoryCgroup;
use testkit::fail::OrFail;
use testkit::framing::{self, Part};
use testkit::https::Request;
use testkit::process;
use testkit::process::Program;
use testkit::random::Random;
use testkit::storm::{Crowd, allow_files, source};
use testkit::tmpfs::Tmpfs;
use testkit::upload_pod::{Server, UploadPod};
use testkit::upload_proxy::beside;
use testkit::{disk, tools, wait};

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-uploadserver");

/// The limit in ARCHITECTURE.md, "Memory". It holds for a debug build too, without what
/// `testkit::process::PEAK_RSS_BYTES` adds for one.
const PEAK_RSS_BYTES: u64 = 64 << 20;

/// The disk: each [`STRIDE_BYTES`] of it begin with [`ISLAND_BYTES`] of data, followed by zeros.
/// That is 288 MiB of data in all.
const DISK_BYTES: u64 = 2 << 30;
const STRIDE_BYTES: usize = 32 << 20;
const ISLAND_BYTES: u64 = 9 << 19;

/// Delay of every write of the server, so that the target is slower than the client.
const WRITE_DELAY: Duration = Duration::from_millis(4);

/// Bytes that are sent at once.
const PIECE_BYTES: usize = 1 << 20;

/// An image of the disk, and the path that it is sent to.
struct Case {
    name: &'static str,
    /// Options of `qemu-img convert`; none for the raw disk itself.
    options: Option<&'static [&'static str]>,
    path: &'static str,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

fn make_raw(path: &Path) {
    let file = File::create(path).or_fail(path.display());
    file.set_len(DISK_BYTES).or_fail(path.display());
    for (seed, offset) in (0..DISK_BYTES).step_by(STRIDE_BYTES).enumerate() {
        // Only a few different ones, because making them takes time.
        let island = disk::content(seed as u64 % 4, ISLAND_BYTES);
        file.write_all_at(&island, offset).or_fail(path.display());
    }
}

fn make_qcow2(raw: &Path, path: &Path, options: &[&str]) {
    let convert = ["convert", "-t", "unsafe", "-f", "raw", "-O", "qcow2"];
    let arguments = convert.iter().chain(options).map(AsRef::as_ref);
    tools::run("qemu-img", arguments.chain([raw.as_os_str(), path.as_os_str()]));
}

/// Posts the file `object`, in a form if the path is for forms. Returns how long after its last
/// byte the answer came.
fn upload(server: &Server, path: &str, object: &Path) -> Duration {
    let request = Request::post(path);
    let (request, front, back) = if path.contains("form") {
        let request = request.header("Content-Type", &framing::form_content_type());
        (request, framing::form_head(&Part::file(b"")), framing::form_tail())
    } else {
        (request, Vec::new(), Vec::new())
    };
    let mut file = File::open(object).or_fail(object.display());
    let length = file.metadata().or_fail(object.display()).len();
    let mut connection = server.connect();
    let length = usize::try_from(length).or_fail("a length") + front.len() + back.len();
    connection.begin(&request.length(length)).or_fail("send the head");
    connection.send(&front).or_fail("send");
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece).or_fail(object.display()) {
            0 => break,
            length => connection.send(&piece[..length]).or_fail("send"),
        }
    }
    connection.send(&back).or_fail("send");
    let sent = Instant::now();
    connection.response().or_fail("an answer").assert_uploaded();
    sent.elapsed()
}

#[test]
#[ignore = "alone: measures memory"]
fn an_upload_to_a_slow_target_stays_below_the_memory_limit() {
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("disk.raw");
    make_raw(&raw);
    let cases = [
        Case { name: "raw", options: None, path: "/v1beta1/upload" },
        Case { name: "plain qcow2", options: Some(&[]), path: "/v1beta1/upload" },
        Case {
            name: "zlib qcow2, in any order",
            options: Some(&["-c", "-W"]),
            path: "/v1beta1/upload-async",
        },
        Case { name: "zlib qcow2 in a form", options: Some(&["-c"]), path: "/v1beta1/upload-form" },
        Case {
            name: "zstd qcow2",
            options: Some(&["-c", "-o", "compression_type=zstd,cluster_size=2M"]),
            path: "/v1beta1/upload",
        },
    ];
    check_all(cases, |case| {
        let folder = tempfile::tempdir_in(&folder).or_fail("a folder");
        let object = match case.options {
            Some(_) => folder.path().join("object"),
            None => raw.clone(),
        };
        if let Some(options) = case.options {
            make_qcow2(&raw, &object, options);
        }
        let pod = UploadPod::new(BINARY);
        let writes = "pwrite64,pwritev,pwritev2";
        let trace = format!("trace={writes}");
        let inject = format!("inject={writes}:delay_enter={}", WRITE_DELAY.as_micros());
        let options =
            ["-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        let program = pod.program().under("strace", options).timeout(Duration::from_secs(240));
        let server = pod.serve(program.measured());
        upload(&server, case.path, &object);
        let finished = server.wait();
        finished.assert_success("upload");
        disk::assert_same(&pod.disk(), &raw, DISK_BYTES, "upload");
        let peak = finished.peak_rss_bytes.or_fail("the peak of a finished program");
        println!("{case}: {peak} bytes at most");
        assert!(peak <= PEAK_RSS_BYTES, "a peak of {peak} bytes of memory");
    });
}

#[test]
#[ignore = "alone: measures memory"]
fn small_files_that_expand_do_not_exhaust_the_memory() {
    const LIMIT: u64 = 256 << 20;
    let pod = UploadPod::new(BINARY);
    let group = MemoryCgroup::new(LIMIT);
    let server = pod.serve(group.wrap(pod.program().timeout(Duration::from_secs(240))));
    for bomb in bombs::all() {
        let answer = server.post("/v1beta1/upload", &bomb.bytes);
        assert_eq!(group.oom_kills(), 0, "{}: killed for memory", bomb.name);
        assert!((400..600).contains(&answer.status), "{}: {answer:?}", bomb.name);
        server.wait_until_idle();
        assert_eq!(pod.data_names(), [""; 0], "{}: something is left", bomb.name);
    }
    // The server must still work.
    let content = disk::content(1, 1 << 20);
    server.post_last("/v1beta1/upload", &content);
    assert!(std::fs::read(pod.disk()).unwrap() == content);
}

/// Memory that a debug build may take beyond a release build.
const DEBUG_BYTES: u64 = process::PEAK_RSS_BYTES - PEAK_RSS_BYTES;

/// Limit on the memory of a server after an upload, beyond what it had before the first one.
const LEFT_BYTES: u64 = (16 << 20) + DEBUG_BYTES;

/// The paths by which bytes reach the server.
const WAYS: [&str; 5] =
    ["upload", "upload-form", "upload-async", "upload-archive", "upload-resumable"];

/// Sends `body` by one of these paths and returns the status.
fn send(server: &Server, way: &str, body: &[u8]) -> u16 {
    let path = format!("/v1beta1/{way}");
    let response = match way {
        "upload-form" => {
            let request =
                Request::post(&path).header("Content-Type", &framing::form_content_type());
            server.exchange(&request, &framing::form(&[Part::file(body)]))
        }
        "upload-resumable" => {
            let request = Request::post(&path)
                .header("Tus-Resumable", "1.0.0")
                .header("Upload-Length", &body.len().to_string());
            server.exchange(&request, body)
        }
        _ => server.post(&path, body),
    };
    response.status
}

#[test]
#[ignore = "alone: measures memory"]
fn an_upload_releases_its_memory() {
    const UPLOADS: u64 = 20;
    check_all([64, 128, 256], |mib: &u64| {
        let limit = (mib << 20) + DEBUG_BYTES;
        let available = limit - RESERVE_BYTES.min(limit / 100 * 30);
        let bombs = bombs::to_the_brim(usize::try_from(available).or_fail(available));
        let pod = UploadPod::new(BINARY);
        let group = MemoryCgroup::new(limit);
        let server = pod.serve(group.wrap(pod.program().timeout(Duration::from_secs(600))));
        let fresh = process::memory(server.id(), "VmRSS");
        let mut random = Random::new(*mib);
        let mut sent = Vec::new();
        for _ in 0..UPLOADS {
            let bomb =
                &bombs[usize::try_from(random.below(bombs.len() as u64)).or_fail("an index")];
            let way = WAYS[usize::try_from(random.below(WAYS.len() as u64)).or_fail("an index")];
            let status = send(&server, way, &bomb.bytes);
            sent.push(format!("{way} of {}: {status}", bomb.name));
            assert_eq!(group.oom_kills(), 0, "killed for memory: {sent:#?}");
            assert!((400..600).contains(&status), "{sent:#?}");
            server.wait_until_idle();
            let left = process::memory(server.id(), "VmRSS").saturating_sub(fresh);
            println!("{mib:>4} MiB, {left:>10} bytes more after {}", sent[sent.len() - 1]);
            assert!(
                left <= LEFT_BYTES,
                "{left} bytes more than the {fresh} at first after {sent:#?}"
            );
        }
        // The server must still work.
        let content = disk::content(1, 1 << 20);
        server.post_last("/v1beta1/upload", &content);
        assert!(std::fs::read(pod.disk()).or_fail("the disk") == content);
    });
}

#[test]
#[ignore = "alone: measures memory"]
fn both_ends_of_a_clone_stay_below_the_bound() {
    let pod = UploadPod::new(BINARY);
    let source = pod.path("source.img");
    make_raw(&source);
    let server = pod.serve(pod.program().measured());
    let cloner = Program::new(beside(BINARY, "cdi-cloner")).arg("clone").arg(&source);
    let cloner = cloner.arg(server.url("/v1beta1/upload"));
    let cloner = [("--cacert", "ca.crt"), ("--cert", "client.crt"), ("--key", "client.key")]
        .into_iter()
        .fold(cloner, |cloner, (option, file)| cloner.arg(option).arg(pod.tls(file)));
    let sent = cloner.measured().run();
    sent.assert_success("clone");
    let received = server.wait();
    received.assert_success("upload");
    disk::assert_same(&pod.disk(), &source, DISK_BYTES, "clone");
    for finished in [sent, received] {
        let peak = finished.peak_rss_bytes.or_fail("the peak of a finished program");
        assert!(peak <= process::PEAK_RSS_BYTES, "{}: {peak} bytes of memory", finished.name);
    }
}

#[test]
#[ignore = "alone: measures memory"]
fn the_answer_comes_within_a_second_of_the_last_byte() {
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("disk.raw");
    std::fs::write(&raw, disk::content(1, 192 << 20)).unwrap();
    let qcow2 = folder.path().join("disk.qcow2");
    make_qcow2(&raw, &qcow2, &["-c", "-W"]);
    for (path, object) in [("/v1beta1/upload", &qcow2), ("/v1beta1/upload", &raw)] {
        let pod = UploadPod::new(BINARY);
        // In memory, where fsync takes no time.
        let volume = Tmpfs::on(&pod.path("data"), 256 << 20);
        let server = pod.start();
        let waited = upload(&server, path, object);
        println!("{waited:?} after the last byte of {}", object.display());
        assert!(waited < Duration::from_secs(1), "{waited:?} after the last byte");
        server.wait().assert_success("upload");
        disk::assert_same(&pod.disk(), &raw, 192 << 20, "upload");
        drop(volume);
    }
}

#[test]
#[ignore = "alone: measures memory"]
fn idle_connections_and_requests_for_the_offset_hold_little_memory() {
    const GROWTH_BYTES: u64 = 8 << 20;
    const QUESTIONS: usize = 5000;
    allow_files(8192);
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    // Memory that is allocated only once.
    server.wait_until_idle();
    let before = process::memory(server.id(), "VmRSS");
    for hello in testkit::hello::kinds(&pod.authority().client_config().unwrap()) {
        let mut crowd = Crowd::new();
        crowd.join(|_| source(0), server.address(), 2000, &hello);
        server.wait_until_idle();
        let grown = process::memory(server.id(), "VmHWM").saturating_sub(before);
        assert!(grown < GROWTH_BYTES, "{grown} bytes for {} of a handshake", hello.len());
    }
    let create = Request::post("/v1beta1/upload-resumable").header("Tus-Resumable", "1.0.0");
    let created = server.exchange(&create.header("Upload-Length", "1048576").length(0), &[]);
    let location = created.header("location").unwrap();
    let path = &location[location.find("/v1beta1").unwrap()..];
    let question = Request::new("HEAD", path).header("Tus-Resumable", "1.0.0");
    let mut connection = server.connect();
    let before = process::memory(server.id(), "VmRSS");
    for _ in 0..QUESTIONS {
        assert_eq!(connection.exchange(&question, &[]).unwrap().status, 200);
    }
    let grown = process::memory(server.id(), "VmRSS").saturating_sub(before);
    assert!(grown < 1 << 20, "{grown} bytes after {QUESTIONS} questions");
}

#[test]
#[ignore = "alone: measures response times"]
fn health_is_answered_while_xz_is_decoded() {
    let content = disk::content(1, 32 << 20);
    let stream = tools::filter("xz", ["-c", "-T2", "-1", "--block-size=8MiB"], &content);
    let body = stream.repeat(16);
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    let done = AtomicBool::new(false);
    let mut waits = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            server.post("/v1beta1/upload", &body).assert_uploaded();
            done.store(true, Ordering::Relaxed);
        });
        server.wait_for_line("Content type header is");
        let mut probe = server.connect();
        while !done.load(Ordering::Relaxed) {
            let started = Instant::now();
            match probe.exchange(&Request::new("GET", "/healthz"), &[]) {
                Ok(health) => health.assert(200, "OK"),
                // The server closes its connections once the upload is done.
                Err(error) => {
                    return wait::until(|| error.to_string(), || done.load(Ordering::Relaxed));
                }
            }
            waits.push(started.elapsed());
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    server.wait().assert_success("upload");
    waits.sort();
    assert!(waits.len() > 100, "the upload took only {} probes", waits.len());
    let (longest, median) = (waits[waits.len() - 1], waits[waits.len() / 2]);
    println!("{} probes, median {median:?}, longest {longest:?}", waits.len());
    // Two cores decode meanwhile.
    assert!(
        longest < Duration::from_millis(100),
        "a probe took {longest:?}, the median {median:?}"
    );
}
