//! The memory of a transfer is bounded for any image, source and speed of target, also in a cgroup.
//!
//! Only this program and that of the upload server assert bounds on memory: beside other programs,
//! the peak of a process is up to 4 MB higher.

mod attacks;
mod cgroup;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use testkit::cases::{Named, check_all};
use testkit::fail::OrFail;
use testkit::nbd::NbdServer;
use testkit::origin::{Origin, Script};
use testkit::process::{Finished, PEAK_RSS_BYTES, Program};
use testkit::{disk, tools};

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-importer");

/// Size of the disk. Every 128 MiB of it begin with [`ISLAND_BYTES`] of data, and zeros follow:
/// 144 MiB of data in all.
const DISK_BYTES: u64 = 4 << 30;
const ISLAND_BYTES: u64 = 9 << 19;

/// Writes the disk, with holes for its zeros.
fn make_raw(path: &Path) {
    let file = File::create(path).or_fail(path.display());
    file.set_len(DISK_BYTES).or_fail(path.display());
    let islands = [0, 1, 2, 3].map(|seed| disk::content(seed, ISLAND_BYTES));
    for (offset, island) in (0..DISK_BYTES).step_by(1 << 27).zip(islands.iter().cycle()) {
        file.write_all_at(island, offset).or_fail(path.display());
    }
}

/// Writes the disk as an image with these options of `qemu-img convert`.
fn make_qcow2(raw: &Path, path: &Path, options: &[&str]) {
    let convert = ["convert", "-W", "-t", "unsafe", "-f", "raw", "-O", "qcow2"];
    let words = convert.iter().chain(options).map(AsRef::as_ref);
    tools::run("qemu-img", words.chain([raw.as_os_str(), path.as_os_str()]));
}

const PLAIN: &[&str] = &["-o", "cluster_size=64k"];
const ZLIB: &[&str] = &["-c", "-o", "cluster_size=64k"];
const ZSTD: &[&str] = &["-c", "-o", "compression_type=zstd"];
const LARGE_ZSTD: &[&str] = &["-c", "-o", "compression_type=zstd,cluster_size=2M"];

/// Asserts that the program, which was measured, stayed below the bound.
#[track_caller]
fn assert_peak(finished: &Finished, case: &str) {
    let peak = finished.peak_rss_bytes.or_fail("the peak of a finished program");
    assert!(peak <= PEAK_RSS_BYTES, "{case}: a peak of {peak} bytes of memory");
}

/// Delays every write of `program`, which makes the target slower than any source.
fn slowly(program: Program, delay: Duration) -> Program {
    let writes = "pwrite64,pwritev,pwritev2";
    let trace = format!("trace={writes}");
    let inject = format!("inject={writes}:delay_enter={}", delay.as_micros());
    let options = ["-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    program.under("strace", options).timeout(Duration::from_secs(240))
}

const WRITE_DELAY: Duration = Duration::from_millis(4);

/// Raw and compressed disks are measured in a cgroup.
#[test]
#[ignore = "alone: measures memory"]
fn a_large_disk_on_a_slow_target_stays_below_the_bound() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let raw = folder.path().join("disk.raw");
    make_raw(&raw);
    let images = [("plain", PLAIN), ("zlib", ZLIB), ("zstd", ZSTD), ("large zstd", LARGE_ZSTD)];
    check_all(images.map(|(name, options)| Named(name, options)), |Named(name, options)| {
        let folder = tempfile::tempdir_in(&folder).or_fail("a folder");
        let (object, target) = (folder.path().join("object"), folder.path().join("disk.img"));
        make_qcow2(&raw, &object, options);
        let import = || Program::new(BINARY).args(["import", "--force"]);
        for program in [import().arg(&object), import().arg("-").stdin_file(&object)] {
            let finished = slowly(program.arg(&target), WRITE_DELAY).measured().run();
            finished.assert_success(name);
            disk::assert_same(&target, &raw, DISK_BYTES, name);
            assert_peak(&finished, name);
        }
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
    let importer = Program::new(BINARY).args(["import", "--threads", "8", "-"]).arg(&target);
    let finished = importer.stdin_bytes(stream.repeat(times)).measured().run();
    finished.assert_success("import");
    disk::assert_same(&target, &raw, STREAMS * STREAM_BYTES, "import");
    assert_peak(&finished, "xz");
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
    make_qcow2(&raw, &object, LARGE_ZSTD);
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
    assert_peak(&finished, "a slow pipe");
}

#[test]
#[ignore = "alone: measures memory"]
fn a_disk_that_becomes_qcow2_stays_below_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let (raw, target) = (folder.path().join("disk.raw"), folder.path().join("disk.qcow2"));
    make_raw(&raw);
    for compression in ["none", "zlib", "zstd"] {
        let options = ["convert", "--threads", "8", "--force", "--compression", compression];
        let program = Program::new(BINARY).args(options).arg(&raw).arg(&target);
        let finished = slowly(program, WRITE_DELAY).measured().run();
        finished.assert_success(compression);
        let compare = ["compare", "-f", "raw", "-F", "qcow2"].map(AsRef::as_ref);
        tools::run("qemu-img", compare.into_iter().chain([raw.as_os_str(), target.as_os_str()]));
        assert_peak(&finished, compression);
    }
}

#[test]
#[ignore = "alone: measures memory"]
fn a_window_larger_than_the_bound_is_refused_before_it_is_allocated() {
    // RFC 8878 §3.1.1: magic, no content size, a window of 2^28 bytes; one empty last block.
    let zstd = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 18 << 3, 0x01, 0x00, 0x00];
    let options = ["-c", "-q", "--lzma2=preset=0,dict=256MiB"];
    let xz = tools::filter("xz", options, &disk::content(1, 1 << 20));
    for object in [zstd, xz] {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("disk.img");
        let program = Program::new(BINARY).args(["import", "-"]).arg(&target);
        let finished = program.stdin_bytes(object).measured().run();
        finished.assert_failure(4, "recompress it with a smaller window");
        assert_peak(&finished, "a window");
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
    make_qcow2(raw.as_ref(), full.as_ref(), PLAIN);
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
        assert_peak(&finished, &format!("{words:?}"));
        std::fs::remove_file(&target).ok();
    }
}
