//! The cost of an import depends on the data of its image, not on the size of its disk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::fail::OrFail;
use testkit::process::Program;
use testkit::{disk, tools};

/// Number of islands of data, which are spread evenly over the disk and have 256 MiB in all.
const ISLANDS: u64 = 64;
const ISLAND_BYTES: u64 = 4 << 20;

/// The islands repeat after this many, which makes the disks quick to make.
const DISTINCT_ISLANDS: u64 = 4;

const SMALL_DISK_BYTES: u64 = 4 << 30;
const LARGE_DISK_BYTES: u64 = 1 << 40;

/// Number of runs. The shortest one counts, because other tests run at the same time.
const RUNS: usize = 3;

/// A disk as a sparse file.
struct Disk {
    raw: PathBuf,
    bytes: u64,
}

impl Disk {
    fn new(raw: PathBuf, bytes: u64) -> Self {
        let file = File::create(&raw).or_fail(raw.display());
        file.set_len(bytes).or_fail(raw.display());
        let islands: Vec<_> =
            (0..DISTINCT_ISLANDS).map(|seed| disk::content(seed, ISLAND_BYTES)).collect();
        for (index, island) in (0..ISLANDS).zip(islands.iter().cycle()) {
            file.write_all_at(island, index * (bytes / ISLANDS)).or_fail(raw.display());
        }
        Self { raw, bytes }
    }

    fn pack(&self, options: &[&str]) -> PathBuf {
        let qcow2 = self.raw.with_extension("qcow2");
        let convert = ["convert", "-W", "-t", "unsafe", "-f", "raw", "-O", "qcow2"];
        let words = convert.iter().chain(options).map(AsRef::as_ref);
        tools::run("qemu-img", words.chain([self.raw.as_os_str(), qcow2.as_os_str()]));
        qcow2
    }

    /// Imports an image of the disk in bounded memory. Returns the time that it took.
    fn import(&self, qcow2: &Path, from_pipe: bool) -> Duration {
        let target = self.raw.with_extension("img");
        let importer = Program::new(env!("CARGO_BIN_EXE_cdi-importer")).args(["import", "--force"]);
        let importer =
            if from_pipe { importer.arg("-").stdin_file(qcow2) } else { importer.arg(qcow2) };
        let finished = importer.arg(&target).run();
        finished.assert_success("import");
        disk::assert_same(&target, &self.raw, self.bytes, "import");
        finished.wall
    }
}

#[test]
#[ignore = "alone: compares times"]
fn a_disk_of_a_tebibyte_takes_as_long_as_a_small_one_with_the_same_data() {
    let folder = tempfile::tempdir().unwrap();
    let disks = [("small.raw", SMALL_DISK_BYTES), ("large.raw", LARGE_DISK_BYTES)]
        .map(|(name, bytes)| Disk::new(folder.path().join(name), bytes));
    for options in [&[][..], &["-c", "-o", "compression_type=zstd"][..]] {
        let images = disks.each_ref().map(|disk| (disk, disk.pack(options)));
        for from_pipe in [false, true] {
            let shortest = |(disk, qcow2): &(&Disk, PathBuf)| {
                let runs = (0..RUNS).map(|_| disk.import(qcow2, from_pipe));
                runs.min().or_fail("at least one run")
            };
            let [small, large] = images.each_ref().map(shortest);
            assert!(
                large <= small.mul_f64(1.5) + Duration::from_secs(2),
                "{options:?}, from a pipe: {from_pipe}: {large:?} for 1 TiB, {small:?} for 4 GiB"
            );
        }
    }
}
