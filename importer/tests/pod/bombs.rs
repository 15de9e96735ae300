//! Small files that ask for much memory. No import of one is killed for memory, neither with the
//! 256 MiB that docs/operate/images.md recommends nor with CDI's default limit.

use testkit::bombs::{self, Bomb};
use testkit::cases::check_all;
use testkit::cgroup::{InGroup, MemoryCgroup};
use testkit::fail::OrFail;
use testkit::loopdev::LoopDevice;
use testkit::origin::Script;

use crate::pod::{Pod, serve};

/// Memory limits of the pod.
const LIMITS: [u64; 2] = [256 << 20, 600_000_000];

/// Size of a device that is larger than the disk of any bomb.
const DEVICE_BYTES: u64 = 12 << 40;

#[test]
#[ignore = "slow: 32 s of CPU time"]
fn small_files_do_not_exhaust_the_memory() {
    let bombs = bombs::all();
    for Bomb { name, bytes, is_large, .. } in &bombs {
        assert!(*is_large || bytes.len() < 1 << 20, "{name} has {} bytes", bytes.len());
    }
    check_all(bombs.iter().map(|bomb| bomb.name), |name| {
        let bomb = bombs.iter().find(|bomb| bomb.name == *name).or_fail(name);
        for limit in LIMITS {
            println!("{}", explode(bomb, limit));
        }
    });
}

/// Imports the bomb with a memory limit of `limit` bytes. Returns a line about the result.
fn explode(bomb: &Bomb, limit: u64) -> String {
    let folder = tempfile::tempdir().or_fail("a folder");
    let device = LoopDevice::empty(folder.path(), DEVICE_BYTES, 512);
    let origin = serve(Script::new(bomb.bytes.clone()));
    let pod = Pod::http(&origin.url("/object"), &[]);
    std::os::unix::fs::symlink(device.path(), pod.path("dev/cdi-block-volume")).or_fail("a device");
    let group = MemoryCgroup::new(limit);
    let InGroup { finished, .. } = group.run(pod.program());
    let message = pod.message().unwrap_or_default();
    assert_eq!(group.oom_kills(), 0, "killed for memory: {finished:?}");
    assert!(!finished.crashed(), "{finished:?}");
    if limit == LIMITS[0] {
        assert_eq!(finished.code(), 1, "{finished:?}");
        assert!(message.contains(bomb.refused), "{message}");
    }
    let (name, peak, seconds) = (bomb.name, group.peak_bytes(), finished.wall.as_secs_f64());
    format!("{name:<36}{limit:>10}: {peak:>10} bytes, {seconds:>5.1} s, {message}")
}
