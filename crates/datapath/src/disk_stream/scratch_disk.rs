//! Handles an image that cannot be read in the order of its disk: writes the disk to a scratch
//! file, and reads that file.

use std::fs::File;
use std::path::Path;

use codec::encode::blocks::BlockOutlet;
use codec::input::TransferInput;
use stream::buffer::CHUNK_BYTES;
use stream::error::{Error, SourceError, SourceErrorKind, TargetError};
use stream::facts::ImageFacts;
use stream::local::{LocalExtent, LocalFile};
use stream::options::ReadOptions;

use crate::disk::{Disk, with_writer};
use crate::format::PreparedImage;
use crate::options::WriteOptions;

/// Writes the disk of `image` to a sparse, unnamed file in the scratch directory.
pub(super) fn write_to_scratch(
    image: PreparedImage,
    input: &mut TransferInput,
    facts: &ImageFacts,
    reading: &ReadOptions,
    writing: &WriteOptions,
) -> Result<File, Error> {
    let Some(dir) = &writing.scratch else {
        let format = facts.format;
        let message = format!(
            "cannot read this {format} image in the order of its disk, because it is compressed as a whole, is verified by a checksum, or comes from a source without ranges; pass --scratch DIR to write the disk there first"
        );
        return Err(SourceError::new(SourceErrorKind::Invalid, message).into());
    };
    tracing::info!(directory = %dir.display(), "using scratch space");
    let disk = Disk::open_scratch(dir, facts.virtual_size)?;
    let clusters = image.compressed_clusters();
    let copied = with_writer(
        &disk,
        clusters,
        facts.virtual_size,
        writing.workers,
        &reading.stop,
        |writer| image.copy_to_disk(input, writer, reading, writing, |_| ()),
    )?;
    Ok(disk.into_scratch_file(copied.virtual_size)?)
}

/// Passes the disk in `file` to `blocks`.
pub(super) fn pass_file(
    file: File,
    reading: &ReadOptions,
    blocks: &mut BlockOutlet<'_, '_>,
) -> Result<(), Error> {
    let failed = |source| TargetError::new("read", Path::new("the scratch file"), source);
    let mut parts = LocalFile::new(file).map_err(failed)?.chunk_reader(CHUNK_BYTES);
    while let Some(part) = parts.next_part().map_err(failed)? {
        reading.check_stop()?;
        match part {
            LocalExtent::Hole(bytes) => blocks.append_zeros(bytes)?,
            LocalExtent::Data(bytes) => blocks.append_data(&bytes)?,
        }
    }
    Ok(())
}
