//! The clusters of the image: the references to each cluster, and its refcount.

use std::fmt;

use crate::findings::Findings;
use crate::offsets::Host;
use crate::qcow2::header::Qcow2Header;
use crate::qcow2::table::{COPIED, read_refcount, refcounts_per_block};
use crate::wanted_ranges::{LoadedTable, RangeBatch, bytes_of};

/// How a cluster is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClusterUse {
    Header,
    L1,
    L2,
    Data,
    Compressed,
    Refcounts,
    RefcountBlock,
    /// The snapshot table, the table of a bitmap, or a bitmap itself.
    Other,
}

const USES: [(ClusterUse, &str); 8] = [
    (ClusterUse::Header, "the header"),
    (ClusterUse::L1, "an L1 table"),
    (ClusterUse::L2, "an L2 table"),
    (ClusterUse::Data, "data"),
    (ClusterUse::Compressed, "compressed data"),
    (ClusterUse::Refcounts, "the refcount table"),
    (ClusterUse::RefcountBlock, "a refcount block"),
    (ClusterUse::Other, "a snapshot or bitmap table"),
];

/// The counts of a cluster. Both counts saturate at [`u16::MAX`], which means at least that many.
#[derive(Debug, Default, Clone, Copy)]
struct ClusterCounts {
    // The fields are narrow, because a check keeps them for every cluster of the image.
    references: u16,
    refcount: u16,
    /// A bit for each [`ClusterUse`].
    uses: u8,
}

impl ClusterCounts {
    fn is_used(self, used: ClusterUse) -> bool {
        self.uses >> used as u8 & 1 == 1
    }
}

/// The counts of all clusters of the image. The last cluster may be truncated. One more cluster is
/// counted after it, because a table or a compressed cluster may extend into it.
pub(super) struct ClusterTable {
    bits: u32,
    image_end: Host,
    clusters: Vec<ClusterCounts>,
    pub(super) findings: Findings,
}

impl ClusterTable {
    pub(super) fn new(bits: u32, image_length: u64) -> Self {
        let (image_end, findings) = (Host(image_length), Findings::default());
        Self { bits, image_end, clusters: Vec::new(), findings }
    }

    /// Allocates the counts of all clusters, if `batch` has memory for them.
    pub(super) fn allocate_counts(&mut self, batch: &mut RangeBatch) {
        let count = self.image_end.0.div_ceil(1 << self.bits).saturating_add(1);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if batch.charge_bytes(bytes_of::<ClusterCounts>(count)) {
            self.clusters = vec![ClusterCounts::default(); count];
        }
    }

    /// Bytes of memory that the counts take.
    pub(super) fn memory_bytes(&self) -> u64 {
        bytes_of::<ClusterCounts>(self.clusters.len())
    }

    /// Returns the end of the image's last cluster, which may lie beyond the end of the image.
    pub(super) fn clusters_end(&self) -> Host {
        self.image_end.next_unit(1 << self.bits)
    }

    fn counts_at(&mut self, host: Host) -> Option<&mut ClusterCounts> {
        self.clusters.get_mut(usize::try_from(host.0 >> self.bits).ok()?)
    }

    /// Counts `times` references to the bytes `host..host + length`. Reports an error if they lie
    /// beyond the end of the image.
    pub(super) fn count_references(
        &mut self,
        used: ClusterUse,
        host: Host,
        length: u64,
        times: u32,
    ) {
        if !matches!(used, ClusterUse::Data | ClusterUse::Compressed) {
            self.findings.table_bytes += length;
        }
        let end = host.saturating_add(length);
        // The last cluster may be truncated.
        let image_end = self.image_end;
        if end > image_end && end - image_end >= 1 << self.bits {
            let what = use_name(used);
            self.findings.add_error(|| {
                format!(
                    "{what} at {host:#x} of {length} bytes extends beyond the end of the image at {image_end:#x}"
                )
            });
            return;
        }
        let times = u16::try_from(times).unwrap_or(u16::MAX);
        for cluster in (host.unit_start(1 << self.bits).0..end.0).step_by(1 << self.bits) {
            if let Some(cluster) = self.counts_at(Host(cluster)) {
                cluster.references = cluster.references.saturating_add(times);
                cluster.uses |= 1 << used as u8;
            }
        }
    }

    /// Takes the refcounts from a refcount block.
    pub(super) fn learn_block(&mut self, header: &Qcow2Header, block: LoadedTable<'_>) {
        let first = Host(block.note);
        for index in 0..refcounts_per_block(header) {
            let Some(cluster) = self.counts_at(first.saturating_add(index << self.bits)) else {
                break;
            };
            let count = read_refcount(header, block.bytes, index).unwrap_or(0);
            cluster.refcount = u16::try_from(count).unwrap_or(u16::MAX);
        }
    }

    /// Compares the refcount of the cluster at `host` with the flag in the `entry` of a table,
    /// which states whether the refcount is exactly one.
    pub(super) fn compare_flag(&mut self, host: Host, entry: u64) {
        let refcount = self.counts_at(host).map_or(0, |cluster| cluster.refcount);
        let says_one = entry & COPIED != 0;
        if says_one != (refcount == 1) {
            let says = if says_one { "one" } else { "not one" };
            self.findings.add_error(|| {
                format!(
                    "an entry for the cluster at {host:#x} states a refcount of {says}, but it is {refcount}"
                )
            });
        }
    }

    /// Compares references with refcounts. Too many references are an error; too high a refcount
    /// only wastes space. Returns all findings.
    pub(super) fn compare_refcounts(mut self) -> Findings {
        let clusters_end = self.clusters_end();
        for (index, cluster) in self.clusters.iter().enumerate() {
            let host = Host((index as u64) << self.bits);
            // A refcount block must not be shared, even if its refcount allows it.
            let is_shared_block =
                cluster.is_used(ClusterUse::RefcountBlock) && cluster.references > 1;
            if cluster.refcount < cluster.references || is_shared_block {
                self.findings.add_error(|| format!("the cluster at {host:#x} has {cluster}"));
            } else if cluster.refcount > cluster.references && host < clusters_end {
                self.findings.leaked_clusters += 1;
            }
        }
        self.findings
    }
}

impl fmt::Display for ClusterCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uses: Vec<&str> = USES
            .into_iter()
            .filter(|(used, _)| self.is_used(*used))
            .map(|(_, name)| name)
            .collect();
        write!(
            f,
            "{} references (as {}) and a refcount of {}",
            self.references,
            uses.join(", "),
            self.refcount
        )
    }
}

fn use_name(used: ClusterUse) -> &'static str {
    USES.into_iter().find(|(known, _)| *known == used).map_or("", |(_, name)| name)
}
