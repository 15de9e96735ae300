//! Raw images: the stream is the disk.

use bytes::Bytes;

use crate::chunks::Chunks;
use crate::error::Error;
use crate::target::Writer;

/// Raw disks are whole sectors: a last partial one is filled with zeros, as qemu-img does.
pub const SECTOR: u64 = 512;

/// Copies the stream to the disk, in whatever order it comes. Returns the virtual size: the stream's length in whole
/// sectors.
pub fn copy(
    input: &mut impl Chunks,
    writer: &mut Writer<'_>,
    mut tick: impl FnMut(&Writer<'_>),
) -> Result<u64, Error> {
    let mut received = 0u64;
    while let Some((offset, chunk)) = input.next_placed(received)? {
        let length = chunk.len() as u64;
        // A stream whose length nobody announced ends here at the latest, however much it would expand to.
        writer
            .disk()
            .check_fits(offset.saturating_add(length).next_multiple_of(SECTOR))?;
        writer.data(offset, chunk)?;
        received += length;
        tick(writer);
    }
    // Every byte came once, so their number is where the last one ends.
    let virtual_size = received.next_multiple_of(SECTOR);
    let padding = usize::try_from(virtual_size - received).unwrap_or(0);
    writer.data(received, Bytes::from_static(&[0; 512]).slice(..padding))?;
    Ok(virtual_size)
}
