//! Lookup of the disk in the layers: the file below `/disk` that a container of the image would
//! see.
//!
//! Layers are read from the top down. A file that an upper layer deletes or replaces (OCI image
//! layer specification, "Whiteouts") no longer exists, whatever the layers below hold.

use std::collections::BTreeSet;

use stream::error::{Error, SourceError};
use tar::{MemberSearch, TarEntry, TarEntryKind, TarReader};

use fetch::error::invalid_error;
use fetch::messages::plain_line;

/// Directory in which container disks keep their disk.
const FOLDER: &[u8] = b"disk";

/// Prefix of a whiteout: an empty file that deletes the entry whose name follows the prefix.
const WHITEOUT: &[u8] = b".wh.";

/// Name of a whiteout that deletes everything that lower layers have in its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Maximum number of deletions below `/disk` that are remembered. Real images have one or two.
const MAX_HIDDEN: usize = 1024;

/// Longest path, in bytes (`PATH_MAX` of Linux).
const MAX_PATH_BYTES: usize = 4096;

/// The search through one layer, with knowledge of the layers above it.
#[derive(Debug, Default)]
pub(super) struct LayerLookup {
    above: HiddenPaths,
    /// Paths of lower layers that this layer hides.
    here: HiddenPaths,
    found: bool,
}

/// Paths of lower layers that are hidden.
#[derive(Debug, Default)]
struct HiddenPaths {
    /// Paths that are deleted, with everything below them.
    gone: BTreeSet<Vec<u8>>,
    /// Directories whose content is deleted. The path of the root is empty.
    emptied: BTreeSet<Vec<u8>>,
}

impl LayerLookup {
    /// Returns the search through the next lower layer.
    pub(super) fn into_lower_layer(mut self) -> Self {
        self.above.gone.append(&mut self.here.gone);
        self.above.emptied.append(&mut self.here.emptied);
        Self { above: self.above, ..Self::default() }
    }

    fn record_whiteout(&mut self, path: &[&[u8]]) -> Result<(), SourceError> {
        let Some((name, folder)) = path.split_last() else {
            return Ok(());
        };
        let concerns_disks = folder.first().is_none_or(|first| *first == FOLDER);
        let Some(deleted) = name.strip_prefix(WHITEOUT).filter(|_| concerns_disks) else {
            return Ok(());
        };
        // A container sees no path longer than PATH_MAX, so remembering this one would only take
        // memory.
        if path.iter().map(|part| part.len() + 1).sum::<usize>() > MAX_PATH_BYTES {
            return Ok(());
        }
        if *name == OPAQUE {
            self.here.emptied.insert(folder.join(&b'/'));
        } else if !folder.is_empty() || deleted == FOLDER {
            self.here.gone.insert([folder, &[deleted]].concat().join(&b'/'));
        }
        let hidden = [&self.above, &self.here];
        let count: usize =
            hidden.iter().map(|hidden| hidden.gone.len() + hidden.emptied.len()).sum();
        if count > MAX_HIDDEN {
            let message = format!("the layers delete more than {MAX_HIDDEN} files below /disk");
            return Err(invalid_error(message));
        }
        Ok(())
    }

    fn take_disk(&mut self, entry: &TarEntry) -> Result<bool, SourceError> {
        let name = printable_name(&entry.name);
        let instead = match &entry.kind {
            TarEntryKind::Directory => return Ok(false),
            TarEntryKind::File { .. } if self.found => {
                return Err(not_located("image directory contains more than one file"));
            }
            TarEntryKind::File { .. } => {
                tracing::info!("File '{name}' found in the layer");
                self.found = true;
                return Ok(true);
            }
            TarEntryKind::Symlink(target) => {
                format!("a symbolic link to '{}'", printable_name(target))
            }
            TarEntryKind::HardLink(target) => {
                format!("a hard link to '{}'", printable_name(target))
            }
            TarEntryKind::Fifo => "a named pipe".to_owned(),
            TarEntryKind::Special(what) => (*what).to_owned(),
        };
        Err(not_located(&format!("'{name}' is {instead}: put the disk itself into /disk")))
    }
}

impl MemberSearch for LayerLookup {
    fn inspect_member(&mut self, entry: &TarEntry, _: &mut TarReader) -> Result<bool, Error> {
        let path: Vec<&[u8]> = entry
            .name
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty() && *part != b".")
            .collect();
        let is_below = path.len() > 1 && path.first() == Some(&FOLDER);
        if is_below && (path.contains(&&b".."[..]) || entry.name.len() > MAX_PATH_BYTES) {
            let name = printable_name(&entry.name);
            let message =
                format!("Error sanitizing archive path: content filepath is tainted: {name}");
            return Err(invalid_error(message).into());
        }
        if path.last().is_some_and(|name| name.starts_with(WHITEOUT)) {
            self.record_whiteout(&path)?;
            return Ok(false);
        }
        // Any other entry of that name replaces the directory of the layers below.
        if path == [FOLDER] && entry.kind != TarEntryKind::Directory {
            self.here.gone.insert(FOLDER.to_vec());
        }
        if !is_below || self.above.is_hidden(&path.join(&b'/')) {
            return Ok(false);
        }
        Ok(self.take_disk(entry)?)
    }
}

impl HiddenPaths {
    fn is_hidden(&self, path: &[u8]) -> bool {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut folders = slashes.map(|(position, _)| &path[..position]);
        self.emptied.contains(&b""[..])
            || self.gone.contains(path)
            || folders.any(|folder| self.emptied.contains(folder) || self.gone.contains(folder))
    }
}

fn not_located(reason: &str) -> SourceError {
    invalid_error(format!("Cannot locate image file: {reason}"))
}

/// Formats a name for messages.
fn printable_name(name: &[u8]) -> String {
    plain_line(&String::from_utf8_lossy(name))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use stream::chunks::ChunkStream;
    use tar::TarTimestamp;

    use super::*;

    const FILE: TarEntryKind = TarEntryKind::File { size: 1, stored: 1, is_sparse: false };

    struct NoBytes;

    impl ChunkStream for NoBytes {
        fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
            Ok(None)
        }
    }

    fn look(lookup: &mut LayerLookup, name: &str, kind: TarEntryKind) -> Result<bool, String> {
        let name = name.as_bytes().to_vec();
        let entry = TarEntry { name, kind, mode: 0, mtime: TarTimestamp::default() };
        let mut archive = TarReader::new(Box::new(NoBytes));
        lookup.inspect_member(&entry, &mut archive).map_err(|error| error.to_string())
    }

    #[test]
    fn disks_are_files_in_the_folder_disk() {
        for (name, is_disk) in [
            ("disk/disk.img", true),
            ("./disk/fedora 40.qcow2", true),
            ("/disk/a", true),
            ("disk/deeper/a", true),
            ("disk", false),
            ("disk.img", false),
            ("diskette/a", false),
            ("a/disk/b", false),
            ("disk/.wh.a", false),
        ] {
            assert_eq!(look(&mut LayerLookup::default(), name, FILE), Ok(is_disk), "{name}");
        }
        assert_eq!(
            look(&mut LayerLookup::default(), "disk/a/", TarEntryKind::Directory),
            Ok(false)
        );
    }

    #[test]
    fn other_kinds_of_entries_and_second_files_are_refused() {
        let mut lookup = LayerLookup::default();
        assert_eq!(look(&mut lookup, "disk/a", FILE), Ok(true));
        let error = look(&mut lookup, "disk/b", FILE).unwrap_err();
        assert_eq!(error, "Cannot locate image file: image directory contains more than one file");
        for kind in [
            TarEntryKind::Symlink(b"../a".into()),
            TarEntryKind::HardLink(b"a".into()),
            TarEntryKind::Fifo,
            TarEntryKind::Special("a block device"),
        ] {
            let error = look(&mut LayerLookup::default(), "disk/a", kind).unwrap_err();
            assert!(error.starts_with("Cannot locate image file: 'disk/a' is a"), "{error}");
        }
        let error = look(&mut LayerLookup::default(), "disk/../../etc/passwd", FILE).unwrap_err();
        assert!(error.starts_with("Error sanitizing archive path"), "{error}");
    }

    #[test]
    fn deletions_hide_files_of_lower_layers_only() {
        for (whiteout, hidden) in [
            (".wh.disk", true),
            (".wh..wh..opq", true),
            ("disk/.wh..wh..opq", true),
            ("./disk/.wh.a", true),
            ("disk/.wh.b", false),
            ("other/.wh.disk", false),
            (".wh.other", false),
            ("disk/a/.wh..wh..opq", false),
        ] {
            let mut lookup = LayerLookup::default();
            assert_eq!(look(&mut lookup, whiteout, FILE), Ok(false));
            let mut lower = lookup.into_lower_layer();
            assert_eq!(look(&mut lower, "disk/a", FILE), Ok(!hidden), "{whiteout}");
            if !hidden {
                continue;
            }
            let mut lowest = lower.into_lower_layer();
            assert_eq!(look(&mut lowest, "disk/a", FILE), Ok(false), "{whiteout}");
        }
        let mut same = LayerLookup::default();
        assert_eq!(look(&mut same, ".wh.disk", FILE), Ok(false));
        assert_eq!(look(&mut same, "disk/a", FILE), Ok(true), "the layer's own files stay");
        let mut replaced = LayerLookup::default();
        assert_eq!(look(&mut replaced, "disk", FILE), Ok(false));
        assert_eq!(look(&mut replaced.into_lower_layer(), "disk/a", FILE), Ok(false));
    }

    #[test]
    fn the_number_of_deletions_is_limited() {
        let mut lookup = LayerLookup::default();
        let refused =
            (0..10_000).find(|n| look(&mut lookup, &format!("disk/.wh.{n}"), FILE).is_err());
        assert_eq!(refused, Some(MAX_HIDDEN));
    }
}
