//! Positions of blocks and tables in formats that do not count references. Each of them must lie
//! within the image and must not overlap another one.

use crate::findings::Findings;
use crate::layout::ImageLayout;
use crate::offsets::Host;
use crate::wanted_ranges::{RangeBatch, RangeRole, WantedRange, bytes_of};

/// The ranges that the tables of an image refer to, and what is wrong with them.
pub(crate) struct ReferencedRanges {
    pub(crate) image_end: Host,
    pub(crate) findings: Findings,
    wants: Vec<WantedRange>,
}

impl ReferencedRanges {
    pub(crate) fn new(image_length: u64) -> Self {
        Self { image_end: Host(image_length), findings: Findings::default(), wants: Vec::new() }
    }

    /// Bytes of memory that the ranges use.
    pub(crate) fn memory_bytes(&self) -> u64 {
        bytes_of::<WantedRange>(self.wants.capacity())
    }

    /// Records a range, and reports it if it is not within the image. QEMU reads zeros beyond the
    /// end of the image. The memory is charged to `batch`.
    pub(crate) fn add_range(
        &mut self,
        layout: &dyn ImageLayout,
        want: WantedRange,
        batch: &mut RangeBatch,
    ) {
        let (findings, image_end) = (&mut self.findings, self.image_end);
        let bytes = match want.role {
            RangeRole::Table(_) => &mut findings.table_bytes,
            _ => &mut findings.data_bytes,
        };
        *bytes += u64::from(want.length);
        // The length of a compressed block is not known before the block is read.
        let length = match want.role {
            RangeRole::Compressed => 1,
            _ => want.length.into(),
        };
        let end = want.host.saturating_add(length);
        let sentence = || {
            let what = layout.name_of(&want);
            let start = want.host;
            format!("{what} at {start:#x} ends at {end:#x}, the image at {image_end:#x}")
        };
        if end > image_end {
            // QEMU only requires that each grain begins within the image. Several adjacent grains
            // are one range.
            let unit = layout.head_facts().cluster_size.unwrap_or(u64::MAX);
            let last = want.host + length.saturating_sub(1) / unit * unit;
            if !want.is_table() && last >= image_end {
                findings.add_error(sentence);
            } else {
                findings.error_unknown_to_qemu(sentence);
            }
        }
        if batch.make_room(&mut self.wants) {
            self.wants.push(want);
        }
    }

    /// Reports ranges that overlap, and returns all findings. At most one of two overlapping
    /// ranges can be right.
    pub(crate) fn check_overlaps(mut self, layout: &dyn ImageLayout) -> Findings {
        self.wants.sort_unstable();
        let mut widest: Option<&WantedRange> = None;
        for want in &self.wants {
            if let Some(other) = widest
                && want.host < other.host_end()
                // For a compressed block the length is an upper bound. The next block may begin
                // before it.
                && (want.role, other.role) != (RangeRole::Compressed, RangeRole::Compressed)
            {
                self.findings.error_unknown_to_qemu(|| {
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
        self.findings
    }
}
