//! The places of blocks and tables in formats that do not count references: each has its place for itself, within the image.

use crate::findings::Findings;
use crate::layout::ImageLayout;
use crate::offsets::Host;
use crate::wanted_ranges::{RangeBatch, RangeRole, WantedRange, bytes_of};

/// The places that the tables of an image name.
pub(crate) struct ReferencedRanges {
    image_end: Host,
    wants: Vec<WantedRange>,
}

impl ReferencedRanges {
    pub(crate) fn new(image_end: Host) -> Self {
        Self { image_end, wants: Vec::new() }
    }

    /// Bytes of memory that the places take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        bytes_of::<WantedRange>(self.wants.capacity())
    }

    /// Takes a place, and looks whether it is within the image. QEMU reads zeros behind its end. The memory is charged to `batch`.
    pub(crate) fn add_range(
        &mut self,
        layout: &dyn ImageLayout,
        want: WantedRange,
        findings: &mut Findings,
        batch: &mut RangeBatch,
    ) {
        let bytes = match want.role {
            RangeRole::Table(_) => &mut findings.table_bytes,
            _ => &mut findings.data_bytes,
        };
        *bytes += u64::from(want.length);
        // The length of a compressed block is not known before it is read.
        let length = match want.role {
            RangeRole::Compressed => 1,
            _ => want.length.into(),
        };
        let end = want.host.saturating_add(length);
        let sentence = || {
            let what = layout.name_of(&want);
            format!("{what} at {:#x} ends at {end:#x}, the image at {:#x}", want.host, self.image_end)
        };
        if end > self.image_end {
            // All that it asks of a grain is that it begins within the image. Several that follow each other are one want.
            let unit = layout.head_facts().cluster_size.unwrap_or(u64::MAX);
            let last = want.host + length.saturating_sub(1) / unit * unit;
            if !want.is_table() && last >= self.image_end {
                findings.add_error(sentence);
            } else {
                findings.error_unknown_to_qemu(sentence);
            }
        }
        if batch.make_room(&mut self.wants) {
            self.wants.push(want);
        }
    }

    /// Two things in one place: at most one of them is right.
    pub(crate) fn check_overlaps(&mut self, layout: &dyn ImageLayout, findings: &mut Findings) {
        self.wants.sort_unstable();
        let mut widest: Option<&WantedRange> = None;
        for want in &self.wants {
            if let Some(other) = widest
                && want.host < other.host_end()
                // The length of a compressed block is at most that, and the next one begins before.
                && (want.role, other.role) != (RangeRole::Compressed, RangeRole::Compressed)
            {
                findings.error_unknown_to_qemu(|| {
                    format!(
                        "{} at {:#x} overlaps {} at {:#x} ({} bytes)",
                        layout.name_of(want),
                        want.host,
                        layout.name_of(other),
                        other.host,
                        other.length
                    )
                });
            }
            if widest.is_none_or(|other| want.host_end() > other.host_end()) {
                widest = Some(want);
            }
        }
    }
}
