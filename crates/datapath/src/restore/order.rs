//! Checks the files of a chain for contradictions: wrong order, missing files, duplicates.

use std::ops::Range;

use diskimage::Image;
use diskimage::qcow2::BackingFile;
use inspect::raw::SECTOR;
use stream::error::{Error, FormatError};

use super::source::{ChainFile, ChainSource};
use crate::delta::last_part;

/// A file whose header has been read.
pub(super) struct OpenedBackup {
    /// The image; `None` for a raw disk.
    pub(super) image: Option<Image>,
    virtual_size: u64,
    backing_file: Option<BackingFile>,
}

impl OpenedBackup {
    pub(super) fn from_raw(length: u64) -> Self {
        Self { image: None, virtual_size: length.next_multiple_of(SECTOR), backing_file: None }
    }

    pub(super) fn from_image(image: Image, backing_file: Option<BackingFile>) -> Self {
        let virtual_size = image.head_facts().virtual_size;
        Self { image: Some(image), virtual_size, backing_file }
    }
}

/// Checks that `next`, the content of `file`, can follow the last of `backups`.
pub(super) fn check_order(
    backups: &[(&ChainFile, Range<u64>, OpenedBackup)],
    file: &ChainFile,
    next: &OpenedBackup,
) -> Result<(), Error> {
    let Some((before, _, opened)) = backups.last() else {
        return Ok(());
    };
    let name = &before.name;
    if let Some(found) = next.backing_file.as_ref().map(|file| last_part(&file.name))
        && found != name
    {
        return Err(chain_error(format!(
            "its backing file is '{found}', but the file before it is '{name}'; pass all files of the chain, oldest first"
        )));
    }
    // Files of one directory have the same time, which says nothing about their order. Different
    // directories with the same time belong to different machines.
    if let (Some(own), Some(earlier)) = (&file.folder, &before.folder)
        && own.path != earlier.path
        && own.created <= earlier.created
    {
        let (own, earlier) = (&own.created, &earlier.created);
        return Err(chain_error(format!(
            "its directory is dated {own}, but the directory of '{name}' before it is dated {earlier}; pass all files of the chain, oldest first"
        )));
    }
    let (size, earlier) = (next.virtual_size, opened.virtual_size);
    if size < earlier {
        return Err(chain_error(format!(
            "its disk has {size} bytes, but the disk of '{name}' before it has {earlier}, and a disk never shrinks; pass all files of the chain, oldest first"
        )));
    }
    tracing::debug!(
        file = file.name,
        before = before.name,
        "the file can follow the file before it"
    );
    Ok(())
}

/// The error for files that, in the given order, cannot be a backup chain.
pub(super) fn chain_error(reason: impl Into<String>) -> Error {
    FormatError::Misfit(reason.into()).into()
}

/// Checks that no file occurs twice, not even under two names.
pub(super) fn check_distinct(chain: &ChainSource) -> Result<(), Error> {
    let places: Vec<_> = chain
        .placed_files()
        .filter_map(|(file, _)| Some((file.source.name(), file.source.storage_location()?)))
        .collect();
    for (index, (second, place)) in places.iter().enumerate() {
        if let Some((first, _)) =
            places.iter().take(index).find(|(_, other)| other.shares_bytes_with(*place))
        {
            return Err(chain_error(format!(
                "'{first}' and '{second}' are the same file; pass each file of the chain once"
            )));
        }
    }
    Ok(())
}
