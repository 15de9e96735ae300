//! Imports in a small memory cgroup, in which the kernel also counts the page cache and sockets:
//! every kind of image and target fits.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::Advice;
use testkit::cases::{Named, check_all};
use testkit::cgroup::{InGroup, MemoryCgroup};
use testkit::fail::OrFail;
use testkit::loopdev::LoopDevice;
use testkit::origin::{Origin, Script};
use testkit::process::{PEAK_RSS_BYTES, Program};
use testkit::{disk, tools};

use crate::make_qcow2;

/// Memory limit: the bound of ARCHITECTURE.md, "Memory", and half as much again for the kernel.
const LIMIT_BYTES: u64 = 96 << 20;

/// Size of the disk, which has no zeros: [`PERIODS`] times the same [`PERIOD_BYTES`], so that the
/// compressed objects are quick to make.
const DISK_BYTES: u64 = PERIODS * PERIOD_BYTES;
const PERIODS: u64 = 8;
const PERIOD_BYTES: u64 = 32 << 20;

const XZ_9_NAME: &str = "xz with a dictionary of 64 MiB";

/// Size of the dictionary of `xz -9`.
const LARGE_DICTIONARY_BYTES: u64 = 64 << 20;

/// Number of threads as on a machine with many cores.
const THREADS: &str = "16";

/// Delay of every write of a slow target: 40 MB/s for one thread that writes a MiB at a time.
const WRITE_DELAY: Duration = Duration::from_millis(25);

/// Where the bytes come from, and whether the target is slow.
#[derive(Clone, Copy, Debug)]
enum Way {
    FromFile,
    OverHttp,
    OverHttpToSlowTarget,
}

use Way::{FromFile, OverHttp, OverHttpToSlowTarget};

fn make_raw(path: &Path) {
    let periods = usize::try_from(PERIODS).or_fail("a few periods");
    let bytes = disk::content(1, PERIOD_BYTES).repeat(periods);
    std::fs::write(path, bytes).or_fail(path.display());
}

/// Compresses the disk as one member or stream for each of `parts` equal parts.
fn make_members(raw: &Path, path: &Path, parts: u64, program: &str, args: &[&str]) {
    let disk = std::fs::read(raw).or_fail(raw.display());
    let (part, times) = (DISK_BYTES / parts, usize::try_from(parts).or_fail("a few parts"));
    let part = &disk[..usize::try_from(part).or_fail("a part fits into memory")];
    let member = tools::filter(program, ["-c", "-q"].iter().chain(args), part);
    std::fs::write(path, member.repeat(times)).or_fail(path.display());
}

/// What makes an object of the disk.
type Make = fn(&Path, &Path);

const RAW: Make = |raw, path| std::fs::hard_link(raw, path).or_fail(path.display());
const GZIP: Make = |raw, path| make_members(raw, path, PERIODS, "gzip", &["-1"]);
const ZSTD: Make = |raw, path| make_members(raw, path, PERIODS, "zstd", &["-3"]);
/// Eight streams of four blocks each, with the dictionary size of `xz -6`. The preset only
/// decides how long they take to make.
const XZ: Make = |raw, path| {
    let args = ["-T2", "--block-size=8MiB", "--lzma2=preset=1,dict=8MiB"];
    make_members(raw, path, PERIODS, "xz", &args);
};
/// Two streams with the dictionary size of `xz -9`, long enough to fill it.
const XZ_9: Make = |raw, path| make_members(raw, path, 2, "xz", &["--lzma2=preset=1,dict=64MiB"]);
const PLAIN: Make = |raw, path| make_qcow2(raw, path, crate::PLAIN);
/// An L2 table for every 2 MiB: too far apart to be read together.
const SPREAD_TABLES: Make = |raw, path| make_qcow2(raw, path, &["-o", "cluster_size=4k"]);
const LARGE_ZSTD: Make = |raw, path| make_qcow2(raw, path, crate::LARGE_ZSTD);

/// Held by each test: the dirty pages of a cgroup wait for the disk that the tests share, and
/// count as memory of the cgroup meanwhile.
static DISK: Mutex<()> = Mutex::new(());

#[test]
#[ignore = "alone: measures memory"]
fn every_kind_of_image_fits_into_96_mib() {
    let _disk = DISK.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().or_fail("a folder");
    let raw = folder.path().join("disk.raw");
    make_raw(&raw);
    let cases: [(&str, Make, &[Way]); 8] = [
        (XZ_9_NAME, XZ_9, &[OverHttp]),
        ("xz of many blocks", XZ, &[FromFile, OverHttpToSlowTarget]),
        ("zstd qcow2 of 2 MiB", LARGE_ZSTD, &[FromFile, OverHttpToSlowTarget]),
        ("qcow2 with spread tables", SPREAD_TABLES, &[OverHttp]),
        ("qcow2", PLAIN, &[FromFile, OverHttpToSlowTarget]),
        ("raw", RAW, &[FromFile, OverHttpToSlowTarget]),
        ("gzip", GZIP, &[OverHttpToSlowTarget]),
        ("zstd", ZSTD, &[OverHttp]),
    ];
    check_all(cases.map(|(name, make, ways)| Named(name, (make, ways))), |Named(name, case)| {
        let folder = tempfile::tempdir_in(&folder).or_fail("a folder");
        let (object, target) = (folder.path().join("object"), folder.path().join("disk.img"));
        (case.0)(&raw, &object);
        for way in case.1 {
            check(name, *way, &object, &target);
            disk::assert_same(&target, &raw, DISK_BYTES, "import");
            std::fs::remove_file(&target).or_fail("remove the disk");
        }
    });
}

/// Drops a file from the page cache, so that the cgroup that reads it next pays for it.
fn forget(path: &Path) {
    let file = File::open(path).or_fail(path.display());
    file.sync_all().or_fail(path.display());
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).or_fail(path.display());
}

/// Imports in a cgroup with the limit, and asserts that the memory suffices.
fn check(name: &str, way: Way, object: &Path, target: &Path) {
    // The dictionary comes on top of the bound. With one thread the sum fits well.
    let (threads, extra) = match name {
        XZ_9_NAME => ("1", LARGE_DICTIONARY_BYTES),
        _ => (THREADS, 0),
    };
    let importer = Program::new(crate::BINARY).measured().args(["import", "--threads", threads]);
    let group = MemoryCgroup::new(LIMIT_BYTES);
    let serve = || {
        let bytes = std::fs::read(object).or_fail(object.display());
        Origin::start(Script::new(bytes)).or_fail("an origin")
    };
    let InGroup { finished, .. } = match way {
        FromFile => {
            forget(object);
            group.run(importer.arg(object).arg(target))
        }
        OverHttp => {
            let origin = serve();
            group.run(importer.arg(origin.url("/object")).arg(target))
        }
        OverHttpToSlowTarget => {
            let origin = serve();
            let importer = importer.arg(origin.url("/object")).arg(target);
            group.run(crate::slowly(importer, WRITE_DELAY))
        }
    };
    assert_eq!(group.oom_kills(), 0, "{way:?}: killed for memory: {finished:?}");
    finished.assert_success(&format!("{way:?}"));
    let peak = finished.peak_rss_bytes.or_fail("the peak of a finished program");
    assert!(peak <= PEAK_RSS_BYTES + extra, "{way:?}: a peak of {peak} bytes of memory");
}

/// About the limit that CDI gives its pods by default.
const POD_LIMIT_BYTES: u64 = 600 << 20;

/// Speed of a disk that is the slowest part, and the least time that all of the data takes.
const SLOW_DISK_BYTES_PER_SECOND: u64 = 50 << 20;
const DISK_TIME: Duration = Duration::from_secs(DISK_BYTES / SLOW_DISK_BYTES_PER_SECOND);

/// Most dirty bytes: twice what is flushed at once, and a MiB for each of 8 writing threads.
const MOST_DIRTY_BYTES: u64 = 2 * (32 << 20) + 8 * (1 << 20);

#[test]
#[ignore = "alone: measures memory"]
fn dirty_pages_do_not_pile_up_in_front_of_a_slow_disk() {
    let _disk = DISK.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let (raw, log) = (folder.path().join("disk.raw"), folder.path().join("strace.log"));
    make_raw(&raw);
    let device = LoopDevice::new(folder.path(), DISK_BYTES, 512);
    let group =
        MemoryCgroup::new(POD_LIMIT_BYTES).limit_writes(device.path(), SLOW_DISK_BYTES_PER_SECOND);
    let importer = Program::new(crate::BINARY)
        .args(["import", "--cached", "--threads", THREADS, "-"])
        .arg(device.path())
        .stdin_file(&raw)
        .under("strace", trace_syncs(&log));
    let InGroup { finished, most_dirty_bytes } = group.run(importer);
    assert_eq!(group.oom_kills(), 0, "killed for memory: {finished:?}");
    finished.assert_success("import");
    disk::assert_same(device.path(), &raw, DISK_BYTES, "import");
    assert!(finished.wall >= DISK_TIME, "the disk was not slow: {:?}", finished.wall);
    assert!(
        (1 << 20..=MOST_DIRTY_BYTES).contains(&most_dirty_bytes),
        "{most_dirty_bytes} bytes were dirty at once"
    );
    let last = last_syncs(&log);
    assert!(last <= DISK_TIME / 2, "{last:?} of {DISK_TIME:?} were left to the last syncs");
}

fn trace_syncs(log: &Path) -> Vec<PathBuf> {
    let options = ["-f", "--seccomp-bpf", "-qq", "-T", "-e", "trace=fsync", "-o"];
    options.iter().map(PathBuf::from).chain([log.to_owned()]).collect()
}

/// Time in all fsync calls, at the beginning and the end; fdatasync paces the writes between.
fn last_syncs(log: &Path) -> Duration {
    let calls = std::fs::read_to_string(log).or_fail("the log of strace");
    let seconds: Vec<f64> = calls
        .lines()
        .filter_map(|line| line.rsplit_once('<')?.1.strip_suffix('>')?.parse().ok())
        .collect();
    assert!(seconds.len() >= 3, "a disk is committed with three calls of fsync: {calls}");
    Duration::from_secs_f64(seconds.iter().sum())
}
