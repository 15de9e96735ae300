//! The memory of a transfer is bounded for any image, source and speed of target, also in a cgroup.
//!
//! Only this program and that of the upload server assert bounds on memory: beside other programs,
//! the peak of a process is up to 4 MB higher.

mod attacks;
mod cgroup;

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use testkit::cases::check_all;
use testkit::fail::OrFail;
use testkit::nbd::NbdServer;
use testkit::origin::{Origin, Script};
use testkit::process::{PEAK_RSS_BYTES, Program};
use testkit::{disk, tools};

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-importer");

/// Size of the disk. Every [`STRIDE_BYTES`] of it begin with [`ISLAND_BYTES`] of data, and zeros
/// follow: 144 MiB of data in all.
const DISK_BYTES: u64 = 4 << 30;
const STRIDE_BYTES: u64 = 128 << 20;
const ISLAND_BYTES: u64 = 9 << 19;

/// Delay of every write of the program, which makes the target slower than any source.
const WRITE_DELAY: Duration = Duration::from_millis(4);

/// The islands repeat after this many, which makes the compressed objects quick to make.
const DISTINCT_ISLANDS: u64 = 4;

/// An object that becomes the disk.
struct Case {
    name: &'static str,
    make: fn(&Path, &Path),
    /// True if the image is read by its own map, false if it comes through a pipe.
    ranged: bool,
}

impl Case {
    fn new(name: &'static str, ranged: bool, make: fn(&Path, &Path)) -> Self {
        Self { name, make, ranged }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, ranged, .. } = self;
        write!(f, "{name} {}", if *ranged { "by its map" } else { "in one pass" })
    }
}

fn island(index: u64) -> Vec<u8> {
    disk::content(index % DISTINCT_ISLANDS, ISLAND_BYTES)
}

/// Writes the disk, with holes for its zeros.
fn make_raw(path: &Path) {
    let file = File::create(path).or_fail(path.display());
    file.set_len(DISK_BYTES).or_fail(path.display());
    let islands: Vec<_> = (0..DISTINCT_ISLANDS).map(island).collect();
    for (offset, island) in (0..DISK_BYTES).step_by(1 << 27).zip(islands.iter().cycle()) {
        file.write_all_at(island, offset).or_fail(path.display());
    }
}

/// Compresses the disk as one member or stream for each island, and one for the zeros behind it.
fn make_members(program: &str, path: &Path) {
    let compress = |bytes: &[u8]| tools::filter(program, ["-c", "-q"], bytes);
    let zeros = usize::try_from(STRIDE_BYTES - ISLAND_BYTES).or_fail("a stride fits into memory");
    let zeros = compress(&vec![0; zeros]);
    let mut period = Vec::new();
    for index in 0..DISTINCT_ISLANDS {
        period.extend(compress(&island(index)));
        period.extend(&zeros);
    }
    let periods =
        usize::try_from(DISK_BYTES / STRIDE_BYTES / DISTINCT_ISLANDS).or_fail("a few periods");
    std::fs::write(path, period.repeat(periods)).or_fail(path.display());
}

fn make_qcow2(raw: &Path, path: &Path, compressed: bool, options: &str) {
    let mut args = vec!["convert", "-W", "-t", "unsafe", "-f", "raw", "-O", "qcow2", "-o", options];
    if compressed {
        args.push("-c");
    }
    tools::run(
        "qemu-img",
        args.iter().map(AsRef::as_ref).chain([raw.as_os_str(), path.as_os_str()]),
    );
}

const PLAIN: fn(&Path, &Path) = |raw, path| make_qcow2(raw, path, false, "cluster_size=64k");
const ZLIB: fn(&Path, &Path) = |raw, path| make_qcow2(raw, path, true, "cluster_size=64k");
const ZSTD: fn(&Path, &Path) = |raw, path| make_qcow2(raw, path, true, "compression_type=zstd");
const LARGE: fn(&Path, &Path) =
    |raw, path| make_qcow2(raw, path, true, "compression_type=zstd,cluster_size=2M");
const RAW: fn(&Path, &Path) = |raw, path| std::fs::hard_link(raw, path).or_fail(path.display());
const GZIP: fn(&Path, &Path) = |_, path| make_members("gzip", path);
const XZ: fn(&Path, &Path) = |_, path| make_members("xz", path);

#[test]
#[ignore = "alone: measures memory"]
fn a_large_disk_on_a_slow_target_stays_below_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("disk.raw");
    make_raw(&raw);
    let mut cases = vec![
        Case::new("raw", false, RAW),
        Case::new("gzip", false, GZIP),
        Case::new("xz", false, XZ),
    ];
    for (name, make) in
        [("plain", PLAIN), ("zlib", ZLIB), ("zstd", ZSTD), ("zstd in 2 MiB clusters", LARGE)]
    {
        cases.extend([true, false].map(|ranged| Case::new(name, ranged, make)));
    }
    check_all(cases, |case| {
        let folder = tempfile::tempdir_in(&folder).or_fail("a folder");
        let object = folder.path().join("object");
        (case.make)(&raw, &object);
        let peak = import_slowly(case, &object, &folder.path().join("disk.img"), &raw);
        assert!(peak <= PEAK_RSS_BYTES, "a peak of {peak} bytes of memory");
    });
}

#[test]
#[ignore = "alone: measures memory"]
fn many_threads_that_decode_xz_stay_below_the_bound() {
    const STREAM_BYTES: u64 = 32 << 20;
    const STREAMS: u64 = 8;
    let folder = tempfile::tempdir().unwrap();
    let (raw, target) = (folder.path().join("disk.raw"), folder.path().join("disk.img"));
    let bytes = disk::content(1, STREAM_BYTES);
    let times = usize::try_from(STREAMS).unwrap();
    std::fs::write(&raw, bytes.repeat(times)).unwrap();
    // Four blocks in each stream, with the dictionary size of `xz -6`; a fast preset.
    let options = ["-c", "-q", "-T2", "--block-size=8MiB", "--lzma2=preset=1,dict=8MiB"];
    let stream = tools::filter("xz", options, &bytes);
    let importer = Program::new(BINARY)
        .args(["import", "--threads", "8", "-"])
        .arg(&target)
        .stdin_bytes(stream.repeat(times));
    let finished = importer.measured().run();
    finished.assert_success("import");
    disk::assert_same(&target, &raw, STREAMS * STREAM_BYTES, "import");
    let peak = finished.peak_rss_bytes.unwrap();
    assert!(peak <= PEAK_RSS_BYTES, "a peak of {peak} bytes of memory");
}

/// A compressed cluster is kept until all of it has arrived. Until then, few bytes must not
/// occupy a whole chunk of memory.
#[test]
#[ignore = "alone: measures memory"]
fn a_slow_pipe_stays_below_the_bound() {
    const PIECE_BYTES: usize = 4096;
    const PIECE_WAIT: Duration = Duration::from_millis(12);
    let folder = tempfile::tempdir().unwrap();
    let [raw, object, target] =
        ["disk.raw", "object", "disk.img"].map(|name| folder.path().join(name));
    // Bytes of seven bits compress a little: clusters are compressed but stay large.
    let bytes: Vec<u8> = disk::content(1, 8 << 20).iter().map(|byte| byte & 0x7f).collect();
    std::fs::write(&raw, &bytes).unwrap();
    LARGE(&raw, &object);
    let stored = std::fs::read(&object).unwrap();
    let finished = Program::new(BINARY)
        .args(["import", "-"])
        .arg(&target)
        .stdin(move |pipe| {
            let (slow, fast) = stored.split_at(stored.len() / 3);
            for piece in slow.chunks(PIECE_BYTES) {
                pipe.write_all(piece)?;
                std::thread::sleep(PIECE_WAIT);
            }
            pipe.write_all(fast)
        })
        .measured()
        .run();
    finished.assert_success("import");
    disk::assert_same(&target, &raw, 8 << 20, "import");
    let peak = finished.peak_rss_bytes.unwrap();
    assert!(peak <= PEAK_RSS_BYTES, "a peak of {peak} bytes of memory");
}

/// Imports with a delay on every write, compares the disk, and returns the peak of memory.
fn import_slowly(case: &Case, object: &Path, target: &Path, raw: &Path) -> u64 {
    let program = write_slowly("import");
    let program =
        if case.ranged { program.arg(object) } else { program.arg("-").stdin_file(object) };
    let finished = program.arg(target).measured().run();
    finished.assert_success("import");
    disk::assert_same(target, raw, DISK_BYTES, "import");
    finished.peak_rss_bytes.or_fail("the peak of a finished program")
}

/// Returns the program with a delay on every write.
fn write_slowly(command: &str) -> Program {
    let writes = "pwrite64,pwritev,pwritev2";
    let trace = format!("trace={writes}");
    let inject = format!("inject={writes}:delay_enter={}", WRITE_DELAY.as_micros());
    let options = ["-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    let program = Program::new(BINARY).under("strace", options);
    program.timeout(Duration::from_secs(240)).arg(command)
}

#[test]
#[ignore = "alone: measures memory"]
fn a_disk_that_becomes_qcow2_stays_below_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let (raw, target) = (folder.path().join("disk.raw"), folder.path().join("disk.qcow2"));
    make_raw(&raw);
    for compression in ["none", "zlib", "zstd"] {
        let options = ["--threads", "8", "--force", "--compression", compression];
        let program = write_slowly("convert").args(options).arg(&raw).arg(&target);
        let finished = program.measured().run();
        finished.assert_success(compression);
        let compare = ["compare", "-f", "raw", "-F", "qcow2"].map(AsRef::as_ref);
        tools::run("qemu-img", compare.into_iter().chain([raw.as_os_str(), target.as_os_str()]));
        let peak = finished.peak_rss_bytes.unwrap();
        assert!(peak <= PEAK_RSS_BYTES, "{compression}: a peak of {peak} bytes of memory");
    }
}

#[test]
#[ignore = "alone: measures memory"]
fn a_window_larger_than_the_bound_is_refused_before_it_is_allocated() {
    // RFC 8878 §3.1.1: magic, no content size, a window of 2^28 bytes; one empty last block.
    let zstd = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 18 << 3, 0x01, 0x00, 0x00];
    let xz = tools::filter(
        "xz",
        ["-c", "-q", "--lzma2=preset=0,dict=256MiB"],
        &disk::content(1, 1 << 20),
    );
    for object in [zstd, xz] {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("disk.img");
        let program = Program::new(BINARY).args(["import", "-"]).arg(&target);
        let finished = program.stdin_bytes(object).measured().run();
        finished.assert_failure(4, "recompress it with a smaller window");
        assert!(finished.peak_rss_bytes.unwrap() <= PEAK_RSS_BYTES, "{finished:?}");
        assert!(!target.exists(), "the target was left behind");
    }
}

#[test]
#[ignore = "alone: measures memory"]
fn other_sources_and_commands_stay_below_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (raw, full) = (path("disk.raw"), path("full.qcow2"));
    make_raw(raw.as_ref());
    PLAIN(raw.as_ref(), full.as_ref());
    let words = ["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b"];
    tools::run("qemu-img", words.into_iter().chain([full.as_str(), &path("increment.qcow2")]));
    let server = NbdServer::nbdkit(["pattern", "1G"]);
    let origin = Origin::start(Script::new(disk::content(1, 96 << 20))).unwrap();
    let (nbd, url, layout) =
        (server.uri(""), origin.url("/object"), format!("oci:{}", path("layout")));
    let (target, increment) = (path("disk.img"), path("increment.qcow2"));
    for words in [
        &["import", "--connections", "8", &nbd, &target][..],
        &["import", "--connections", "8", &url, &target],
        &["pack", &raw, &layout],
        &["restore", &full, &increment, &target],
    ] {
        let finished = Program::new(BINARY).args(words.iter().copied()).measured().run();
        finished.assert_success(words[0]);
        let peak = finished.peak_rss_bytes.unwrap();
        assert!(peak <= PEAK_RSS_BYTES, "{words:?}: a peak of {peak} bytes of memory");
        std::fs::remove_file(&target).ok();
    }
}
