//! The clusters of the image: the references to each, and its refcount.

use std::fmt;

use crate::findings::Findings;
use crate::offsets::Host;
use crate::qcow2::header::Header;
use crate::qcow2::table::{COPIED, refcount, refcounts_per_block};
use crate::wants::{Batch, Table, bytes_of};

/// The use of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Header,
    L1,
    L2,
    Data,
    Compressed,
    Refcounts,
    RefcountBlock,
    /// The snapshot table, or that of a bitmap, or a bitmap.
    Other,
}

const USES: [(Use, &str); 8] = [
    (Use::Header, "the header"),
    (Use::L1, "an L1 table"),
    (Use::L2, "an L2 table"),
    (Use::Data, "data"),
    (Use::Compressed, "compressed data"),
    (Use::Refcounts, "the refcount table"),
    (Use::RefcountBlock, "a refcount block"),
    (Use::Other, "a snapshot or bitmap table"),
];

/// A cluster. Both counts end at [`u16::MAX`], which then means at least that many.
#[derive(Debug, Default, Clone, Copy)]
struct Cluster {
    references: u16,
    refcount: u16,
    /// A bit for each [`Use`].
    uses: u8,
}

impl Cluster {
    fn is_used(self, used: Use) -> bool {
        self.uses >> used as u8 & 1 == 1
    }
}

/// All clusters of the image, the last of which may be cut, and the one behind them, of which a table or a compressed cluster may
/// have a part.
pub(super) struct Clusters {
    bits: u32,
    image_end: Host,
    clusters: Vec<Cluster>,
}

impl Clusters {
    pub(super) fn new(bits: u32, image_length: u64) -> Self {
        Self {
            bits,
            image_end: Host(image_length),
            clusters: Vec::new(),
        }
    }

    /// Takes memory for all clusters, if `batch` has room for them.
    pub(super) fn begin(&mut self, batch: &mut Batch) {
        let count = self.image_end.0.div_ceil(1 << self.bits).saturating_add(1);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if batch.charge(bytes_of::<Cluster>(count)) {
            self.clusters = vec![Cluster::default(); count];
        }
    }

    /// Bytes of memory that they take.
    pub(super) fn bytes(&self) -> u64 {
        bytes_of::<Cluster>(self.clusters.len())
    }

    /// The end of the image's last cluster.
    pub(super) fn end(&self) -> Host {
        self.image_end.next_unit(1 << self.bits)
    }

    fn at(&mut self, host: Host) -> Option<&mut Cluster> {
        self.clusters.get_mut(usize::try_from(host.0 >> self.bits).ok()?)
    }

    /// Bytes `host..host + length` are referred to, `times` times.
    pub(super) fn count(&mut self, used: Use, host: Host, length: u64, times: u32, findings: &mut Findings) {
        if !matches!(used, Use::Data | Use::Compressed) {
            findings.table_bytes += length;
        }
        let end = host.saturating_add(length);
        // The last cluster may be cut.
        if end > self.image_end && end - self.image_end >= 1 << self.bits {
            findings.error(|| {
                format!(
                    "{} at {host:#x} of {length} bytes is behind the end of the image, which is at {:#x}",
                    name(used),
                    self.image_end
                )
            });
            return;
        }
        let times = u16::try_from(times).unwrap_or(u16::MAX);
        for cluster in (host.unit(1 << self.bits).0..end.0).step_by(1 << self.bits) {
            if let Some(cluster) = self.at(Host(cluster)) {
                cluster.references = cluster.references.saturating_add(times);
                cluster.uses |= 1 << used as u8;
            }
        }
    }

    /// A refcount block.
    pub(super) fn learn_block(&mut self, header: &Header, block: Table<'_>) {
        let first = Host(block.note);
        for index in 0..refcounts_per_block(header) {
            let Some(cluster) = self.at(first.saturating_add(index << self.bits)) else {
                break;
            };
            let count = refcount(header, block.bytes, index).unwrap_or(0);
            cluster.refcount = u16::try_from(count).unwrap_or(u16::MAX);
        }
    }

    /// Compares the refcount of the cluster at `host` with what the `entry` of a table says of it: one, or not one.
    pub(super) fn compare_flag(&mut self, host: Host, entry: u64, findings: &mut Findings) {
        let refcount = self.at(host).map_or(0, |cluster| cluster.refcount);
        let says_one = entry & COPIED != 0;
        if says_one != (refcount == 1) {
            let says = if says_one { "one" } else { "not one" };
            findings.error(|| {
                format!(
                    "an entry for the cluster at {host:#x} says that its refcount is {says}, it is {refcount}"
                )
            });
        }
    }

    /// Compares references and refcounts: more references are an error, a higher refcount is lost space.
    pub(super) fn compare(&self, findings: &mut Findings) {
        for (index, cluster) in self.clusters.iter().enumerate() {
            let host = Host((index as u64) << self.bits);
            // Nothing may share a refcount block, however often it is counted.
            let is_shared_block = cluster.is_used(Use::RefcountBlock) && cluster.references > 1;
            if cluster.refcount < cluster.references || is_shared_block {
                findings.error(|| format!("the cluster at {host:#x} has {cluster}"));
            } else if cluster.refcount > cluster.references && host < self.end() {
                findings.leaked_clusters += 1;
            }
        }
    }
}

impl fmt::Display for Cluster {
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

fn name(used: Use) -> &'static str {
    USES.into_iter()
        .find(|(known, _)| *known == used)
        .map_or("", |(_, name)| name)
}
