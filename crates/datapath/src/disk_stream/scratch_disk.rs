//! Handles an image that cannot be read in the order of its disk: writes the disk to a scratch
//! file, and reads that file.

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;

use super::blocks::BlockOutlet;
use crate::buffer::CHUNK_BYTES;
use crate::disk::{CacheMode, Disk, DiskOptions, with_writer};
use crate::error::{Error, SourceError, SourceErrorKind, TargetError};
use crate::facts::ImageFacts;
use crate::format::PreparedImage;
use crate::input::TransferInput;
use crate::local::{LocalExtent, LocalFile};
use crate::options::{ReadOptions, WriteOptions};

/// Writes the disk of `image` to a sparse file in the scratch directory, whose name is removed.
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
    // In a container each attempt may have the same process id, so the name is random. A file that
    // a killed attempt left is then in nobody's way.
    let suffix = RandomState::new().build_hasher().finish();
    let path = dir.join(format!(".cdi-disk-{suffix:016x}"));
    tracing::info!(directory = %dir.display(), "using scratch space");
    let options = DiskOptions {
        path: path.clone(),
        available: u64::MAX,
        size: None,
        preallocate: false,
        cache: CacheMode::Auto,
        overwrite: false,
        mode: None,
    };
    let disk = Disk::open(&options, facts.virtual_size)?;
    let clusters = image.compressed_clusters();
    let copied = with_writer(
        &disk,
        clusters,
        facts.virtual_size,
        writing.workers,
        &reading.stop,
        |writer| image.copy_to_disk(input, writer, reading, writing, |_| ()),
    )?;
    disk.resize(copied.virtual_size, None)?;
    disk.commit(copied.virtual_size, None)?;
    let file = File::open(&path).map_err(|source| TargetError::new("open", &path, source))?;
    fs::remove_file(&path).map_err(|source| TargetError::new("remove", &path, source))?;
    Ok(file)
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
