//! Converts a qcow2 image that is held in memory.
//!
//! ```sh
//! cargo run --package diskimage --example convert_in_memory -- IMAGE.qcow2 DISK.raw
//! ```

mod memory_disk;

use diskimage::{Format, HEAD_BYTES, Image};

fn main() -> memory_disk::Result<()> {
    let [_, image, disk] = &std::env::args().collect::<Vec<_>>()[..] else {
        return Err("usage: convert_in_memory IMAGE.qcow2 DISK.raw".into());
    };
    let file = std::fs::read(image)?;
    let head = &file[..file.len().min(HEAD_BYTES)];
    let image = Image::open(Format::Qcow2, head)?;
    std::fs::write(disk, memory_disk::convert(image, file)?)?;
    Ok(())
}
