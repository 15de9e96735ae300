//! Clones to a real upload server: every kind of source and target, in both encodings.

use std::fmt;
use std::fs::{self};
use std::net::TcpListener;
use std::path::Path;

use crate::BINARY;
use rustix::process::Signal;
use testkit::cases::check_all;
use testkit::clone_pod::ClonePod;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::loopdev::LoopDevice;
use testkit::process::{Finished, Program};
use testkit::random::Random;
use testkit::terminal::Terminal;
use testkit::tools;
use testkit::trees::{Reach, grow};
use testkit::upload_pod::{Server, UploadPod};
use testkit::upload_proxy::beside;

const MIB: u64 = 1 << 20;
const DISK_BYTES: u64 = 12 * MIB;

/// Limits of random trees that our server can unpack: no devices, and 128 directories deep.
const REACH: Reach = Reach {
    path_bytes: 1000,
    name_bytes: 255,
    target_bytes: 1000,
    has_any_bytes: true,
    has_negative_times: true,
};

fn upload_pod() -> UploadPod {
    UploadPod::new(&beside(BINARY, "cdi-uploadserver"))
}

/// How a clone is started: by command with an encoding, or as a pod, which chooses one itself.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Snappy,
    Zstd,
    Pod,
}

fn clone(way: Way, source: &Path, pod: &UploadPod, server: &Server, preallocate: bool) -> Finished {
    let url = server.url("/v1beta1/upload");
    if way == Way::Pod {
        let cloner = ClonePod::new(BINARY, pod.authority(), pod.client(), &url)
            .env("PREALLOCATION", if preallocate { "true" } else { "false" });
        let cloner = if source.is_dir() { cloner.files(source) } else { cloner.block(source) };
        let finished = cloner.program().run();
        let message =
            if preallocate { "Clone Complete, Preallocation applied" } else { "Clone Complete" };
        assert_eq!(cloner.message().as_deref(), Some(message), "{}", finished.stderr);
        return finished;
    }
    let program = command(source, pod, &url)
        .args(["--encoding", if way == Way::Snappy { "snappy" } else { "zstd" }]);
    let program = if preallocate { program.arg("--no-holes") } else { program };
    program.run()
}

fn command(source: &Path, pod: &UploadPod, url: &str) -> Program {
    Program::new(BINARY)
        .arg("clone")
        .arg(source)
        .arg(url)
        .arg("--cacert")
        .arg(pod.tls("ca.crt"))
        .arg("--cert")
        .arg(pod.tls("client.crt"))
        .arg("--key")
        .arg(pod.tls("client.key"))
}

#[derive(Clone, Copy)]
struct Case {
    way: Way,
    from_device: bool,
    to_device: bool,
    preallocate: bool,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = self.way;
        let kind = |is_device| if is_device { "device" } else { "files" };
        let (from, to) = (kind(self.from_device), kind(self.to_device));
        write!(f, "{way:?}, {from} to {to}, preallocation {}", self.preallocate)
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for way in [Way::Snappy, Way::Zstd, Way::Pod] {
        for from_device in [true, false] {
            for to_device in [true, false] {
                for preallocate in [false, true] {
                    cases.push(Case { way, from_device, to_device, preallocate });
                }
            }
        }
    }
    cases
}

fn content() -> Vec<u8> {
    let mut content = disk::sparse_content(5, DISK_BYTES, 8);
    if let Some(last) = content.last_mut() {
        *last = 1;
    }
    content
}

#[test]
#[ignore = "root: loop devices"]
fn every_source_arrives_unchanged_on_every_target() {
    let content = content();
    let folder = tempfile::tempdir().unwrap();
    check_all(cases(), |case| {
        let volume = tempfile::tempdir().or_fail("a folder");
        let image = volume.path().join("disk.img");
        disk::write_sparse(&image, &content);
        let source = case.from_device.then(|| {
            let device = LoopDevice::new(folder.path(), DISK_BYTES, 512);
            fs::write(device.path(), &content).or_fail("fill the device");
            device
        });
        let target = case.to_device.then(|| LoopDevice::new(folder.path(), DISK_BYTES, 512));
        let pod = upload_pod()
            .env("PREALLOCATION", if case.preallocate { "true" } else { "false" })
            .block_on(target.as_ref());
        let server = pod.start();
        let from = source.as_ref().map_or(volume.path(), LoopDevice::path);
        clone(case.way, from, &pod, &server, case.preallocate).assert_success("clone");
        server.wait().assert_success("upload");
        let message = pod.message().or_fail("a message");
        assert!(message.contains("Clone Complete"), "{message}");
        let copy = pod.disk();
        assert!(fs::read(&copy).or_fail("the copy") == content, "the copy differs");
        if !case.to_device {
            let (data, allocated) = (disk::data_bytes(&copy), disk::allocated_bytes(&copy));
            if case.preallocate {
                assert!(allocated >= DISK_BYTES, "{allocated} bytes are allocated");
            } else {
                assert!(
                    (data..data + 2 * MIB).contains(&allocated),
                    "{allocated} bytes are allocated for {data}"
                );
            }
        }
    });
}

/// Lists everything below `folder` by `find`: kinds, modes, sizes, times and links. The sizes of
/// directories are left out, because they depend on the file system.
fn listing(folder: &Path) -> String {
    let print = |arguments: &[&str]| {
        let arguments = arguments.iter().map(AsRef::as_ref);
        tools::run("find", [folder.as_os_str()].into_iter().chain(arguments))
    };
    let others = ["-mindepth", "1", "-not", "-type", "d", "-printf", "%P\\0%y %m %s %Ts %l %n\\n"];
    let folders = ["-mindepth", "1", "-type", "d", "-printf", "%P\\0%m %Ts\\n"];
    let printed = print(&others) + &print(&folders);
    let mut lines: Vec<_> = printed.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

#[test]
#[ignore = "root: rights of root"]
fn random_trees_arrive_with_names_modes_times_links_and_holes() {
    check_all(0..12, |seed: &u64| {
        let volume = tempfile::tempdir().or_fail("a folder");
        grow(volume.path(), &mut Random::new(seed / 2), REACH, 0);
        let pod = upload_pod();
        let server = pod.start();
        let way = if seed.is_multiple_of(2) { Way::Snappy } else { Way::Zstd };
        clone(way, volume.path(), &pod, &server, false).assert_success("clone");
        server.wait().assert_success("upload");
        let data = pod.path("data");
        assert_eq!(listing(&data), listing(volume.path()));
        let options = ["-r", "--no-dereference"].map(AsRef::as_ref);
        tools::run(
            "diff",
            options.into_iter().chain([data.as_os_str(), volume.path().as_os_str()]),
        );
    });
}

#[test]
fn an_empty_volume_becomes_an_empty_volume() {
    let volume = tempfile::tempdir().unwrap();
    for way in [Way::Snappy, Way::Zstd] {
        let pod = upload_pod();
        let server = pod.start();
        clone(way, volume.path(), &pod, &server, false).assert_success("clone");
        server.wait().assert_success("upload");
        assert_eq!(pod.data_names(), [""; 0]);
    }
}

#[test]
fn the_bar_fits_its_terminal_and_ctrl_c_leaves_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("disk");
    fs::write(&source, disk::content(1, 4 * MIB)).unwrap();
    // Accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}/v1beta1/upload", silent.local_addr().unwrap().port());
    let pod = upload_pod();
    for columns in [80, 60, 40] {
        let terminal = Terminal::open(columns);
        let running = command(&source, &pod, &url).start_on(&terminal);
        let drawn = terminal.wait_for("  0 %");
        assert!(drawn.contains('░') && drawn.lines().count() == 1, "{columns}: {drawn}");
        terminal.type_interrupt();
        running.signal(Signal::INT);
        assert_eq!(running.wait().code(), 130);
        assert_eq!(terminal.screen(), "cdi-cloner: stopped by SIGINT");
        assert_eq!(terminal.wrapped_lines(), Vec::<String>::new());
    }
}

/// After a refusal the server accepts another clone.
#[test]
#[ignore = "root: loop devices"]
fn a_disk_larger_than_the_target_is_refused_and_the_last_json_event_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(folder.path(), 4 * MIB, 512);
    let pod = upload_pod().block(device.path());
    let server = pod.start();
    let source = folder.path().join("disk");
    for (mib, encoding, code, event) in
        [(40, "snappy", 7, "error"), (40, "zstd", 7, "error"), (4, "zstd", 0, "done")]
    {
        fs::write(&source, disk::content(1, mib * MIB)).unwrap();
        let program = command(&source, &pod, &server.url("/v1beta1/upload"));
        let finished = program.args(["--encoding", encoding, "--progress", "json"]).run();
        assert_eq!(finished.code(), code, "{}", finished.stderr);
        let last = finished.stdout.lines().last().or_fail("an event");
        assert!(last.starts_with(&format!("{{\"event\":\"{event}\"")), "{last}");
        let fact = match code {
            0 => format!("\"source_bytes\":{}", mib * MIB),
            _ => "Unexpected status code 400: Saving stream failed: ".to_owned(),
        };
        assert!(last.contains(&fact) && last.contains("\"warnings\":[]"), "{last}");
        assert_eq!(last.contains("\"code\":7"), code == 7, "{last}");
        assert_eq!(last.contains("larger"), code == 7, "{last}");
        assert_eq!(last.contains("\"stage_seconds\":{\"decode\":0.0,"), code == 0, "{last}");
        assert_eq!(last.contains("\"limited_seconds\":{\"decoder\":"), code == 0, "{last}");
    }
    server.wait().assert_success("upload");
}
