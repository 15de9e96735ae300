//! Writes a disk to a file and to a loop device, with and without the page cache, including the
//! final sync.

use std::cell::LazyCell;
use std::fs::File;
use std::io::{Write, stderr};
use std::path::PathBuf;

use benches::Kind;
use bytes::Bytes;
use criterion::{BenchmarkGroup, Criterion, measurement::WallTime};
use datapath::disk::{self, CacheMode, Disk, with_writer};
use stream::buffer::CHUNK_BYTES;
use testkit::loopdev::LoopDevice;
use tokio_util::sync::CancellationToken;

use crate::{Result, done, group, place, threads};

/// Twice the amount that the page cache may hold before it is flushed.
const DISK_BYTES: usize = 64 << 20;
/// The logical sector size of most devices.
const SECTOR_BYTES: u32 = 512;

pub(crate) fn run(criterion: &mut Criterion) -> Result<()> {
    let folder = place::on_disk()?;
    let mut group = group(criterion, "writer", DISK_BYTES);
    let file = || folder.path().join("disk");
    write_kinds(&mut group, "file", &file);
    if has_loop_devices() {
        // Made only if one of its benchmarks is selected.
        let device =
            LazyCell::new(|| LoopDevice::new(folder.path(), DISK_BYTES as u64, SECTOR_BYTES));
        write_kinds(&mut group, "device", &|| device.path().to_owned());
    } else {
        writeln!(stderr(), "writer/device: left out, loop devices need root")?;
    }
    group.finish();
    Ok(())
}

fn has_loop_devices() -> bool {
    File::options().write(true).open("/dev/loop-control").is_ok()
}

fn write_kinds(group: &mut BenchmarkGroup<'_, WallTime>, place: &str, path: &dyn Fn() -> PathBuf) {
    // Text would give the same result as noise, because the writer does not distinguish them.
    for kind in [Kind::Zeros, Kind::Noise] {
        let disk = LazyCell::new(|| kind.data(DISK_BYTES));
        for (cache, cache_name) in
            [(CacheMode::Auto, "auto"), (CacheMode::Direct, "direct"), (CacheMode::Page, "page")]
        {
            let name = format!("{place}-{cache_name}/{}", kind.name());
            group.bench_function(name, |bencher| {
                let target = place::target(path(), cache);
                let disk = LazyCell::force(&disk);
                bencher.iter(|| done(write(&target, disk)));
            });
        }
    }
}

fn write(target: &disk::DiskOptions, data: &Bytes) -> Result<()> {
    let size = data.len() as u64;
    let disk = Disk::open(target, Some(size))?;
    let stop = CancellationToken::new();
    with_writer(&disk, None, Some(size), threads(), &stop, |writer| {
        let mut rest = data.clone();
        let mut offset = 0;
        while !rest.is_empty() {
            let chunk = rest.split_to(CHUNK_BYTES.min(rest.len()));
            let length = chunk.len() as u64;
            writer.add_data(offset, chunk)?;
            offset += length;
        }
        Ok(())
    })?;
    disk.commit(size, None)?;
    Ok(())
}
