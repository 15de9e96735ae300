//! Remembers the checksums of a disk's prefixes, so that each part of the disk is read as rarely
//! as possible.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use stream::prefix_crc::{PrefixCrc, RunningCrc};

use crate::source::{DeviceSource, VolumeReadError};

/// The known checksums of a disk.
#[derive(Default)]
pub(super) struct PrefixTable(Mutex<KnownPrefixes>);

#[derive(Default)]
struct KnownPrefixes {
    /// The checksums at multiples of [`stream::prefix_crc::PREFIX_STEP_BYTES`].
    regular: BTreeMap<u64, PrefixCrc>,
    /// The last one at another offset. Clients ask for the offset first, and then read from it.
    last: Option<PrefixCrc>,
}

impl PrefixTable {
    /// Adds a checksum at a multiple of the distance.
    pub(super) fn add_regular(&self, prefix: PrefixCrc) {
        self.0.lock().regular.insert(prefix.end_offset(), prefix);
    }

    /// Adds a checksum at any offset.
    pub(super) fn add_last(&self, prefix: PrefixCrc) {
        self.0.lock().last = Some(prefix);
    }

    /// Returns the checksum of the longest known prefix that ends at or before `end`, and the
    /// regular checksums up to there.
    fn nearest(&self, end: u64) -> (RunningCrc, Vec<PrefixCrc>) {
        let known = self.0.lock();
        let regular: Vec<_> = known.regular.range(..=end).map(|(_, known)| *known).collect();
        let last = known.last.filter(|last| last.end_offset() <= end);
        let nearest = last.into_iter().chain(regular.last().copied());
        let nearest = nearest.max_by_key(|prefix| prefix.end_offset());
        (nearest.map(RunningCrc::resume_at).unwrap_or_default(), regular)
    }

    /// Returns the checksum of the first `end` bytes of `disk`, which are read as far as they are
    /// not known. Calls `passed` with each checksum, the last one at `end`, and stops early if
    /// it returns false.
    pub(super) fn read_until(
        &self,
        disk: &DeviceSource,
        end: u64,
        mut passed: impl FnMut(PrefixCrc) -> bool,
    ) -> Result<RunningCrc, VolumeReadError> {
        let (mut crc, regular) = self.nearest(end);
        let mut last = None;
        let mut passed = |prefix: PrefixCrc| {
            // The end may be a multiple of the distance, and is then listed once.
            last.replace(prefix.end_offset()) == Some(prefix.end_offset()) || passed(prefix)
        };
        let mut is_wanted = regular.into_iter().all(&mut passed);
        if is_wanted {
            let reading = crc.read_until(disk.as_local(), end, |prefix| {
                self.add_regular(prefix);
                is_wanted = passed(prefix);
                is_wanted
            });
            reading.map_err(|source| disk.read_error(source))?;
        }
        if is_wanted {
            self.add_last(crc.checksum());
            passed(crc.checksum());
        }
        Ok(crc)
    }
}
