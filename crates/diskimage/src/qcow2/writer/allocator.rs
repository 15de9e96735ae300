//! Allocates the clusters of an image that is written from front to back, and counts the
//! references to them (qcow2.rst, "Host cluster management").

use bytes::Bytes;

use super::{ImageSink, WRITTEN_CLUSTER_BYTES, table_clusters};
use crate::offsets::Host;

/// log2 of the width of a refcount in bits: 16 bits, QEMU's default.
pub(super) const REFCOUNT_ORDER: u32 = 4;
/// Refcounts in a block, which fills a cluster. A block counts 2 GiB of the image.
const BLOCK_COUNTS: u64 = (WRITTEN_CLUSTER_BYTES * 8) >> REFCOUNT_ORDER;

/// The allocated part of an image.
#[derive(PartialEq)]
pub(super) struct ClusterAllocator {
    /// Index of the first cluster that is not allocated.
    end: u64,
    /// The refcount table: the offset of each block.
    table: Vec<u64>,
    /// Offset and clusters of the place that is reserved for the refcount table.
    reserved: Option<(Host, u64)>,
    /// The block that counts the clusters before the end. Its place is unknown while clusters that
    /// must follow each other are allocated.
    block_host: Option<Host>,
    counts: Vec<u16>,
}

impl Default for ClusterAllocator {
    fn default() -> Self {
        Self { end: 0, table: Vec::new(), reserved: None, block_host: None, counts: empty_counts() }
    }
}

impl ClusterAllocator {
    /// Allocates `count` clusters that follow each other. They must be fewer than a refcount block
    /// counts.
    pub(super) fn allocate<S: ImageSink>(
        &mut self,
        count: u64,
        sink: &mut S,
    ) -> Result<Host, S::Error> {
        let first = self.end;
        for _ in 0..count {
            self.count_next(sink)?;
        }
        self.reserve_block(sink)?;
        Ok(host_of(first))
    }

    /// Allocates a cluster for the current refcount block, unless it already has one.
    pub(super) fn reserve_block<S: ImageSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        if self.block_host.is_none() {
            self.block_host = Some(host_of(self.end));
            self.count_next(sink)?;
        }
        Ok(())
    }

    /// Allocates the cluster at `host`, if an earlier writer can have allocated it next. Otherwise
    /// returns false. The earlier writer may have allocated several clusters at once, so the place
    /// of the refcount block may remain unknown.
    pub(super) fn allocate_at<S: ImageSink>(
        &mut self,
        host: Host,
        sink: &mut S,
    ) -> Result<bool, S::Error> {
        if host == host_of(self.end + 1) {
            self.reserve_block(sink)?;
        }
        let is_uncounted = self.block_host.is_none() && self.end.is_multiple_of(BLOCK_COUNTS);
        if host != host_of(self.end) || is_uncounted {
            return Ok(false);
        }
        self.count_next(sink)?;
        Ok(true)
    }

    /// The length of the image so far, in bytes.
    pub(super) fn image_bytes(&self) -> u64 {
        self.end * WRITTEN_CLUSTER_BYTES
    }

    /// Allocates `length` bytes for a compressed cluster: behind the last one, which ends at
    /// `last_end`, if they fit there or the next cluster is free.
    pub(super) fn allocate_packed<S: ImageSink>(
        &mut self,
        last_end: Option<Host>,
        length: u64,
        sink: &mut S,
    ) -> Result<Host, S::Error> {
        if let Some(host) = last_end {
            let cluster = host.0 / WRITTEN_CLUSTER_BYTES;
            let fits = (host.0 + length - 1) / WRITTEN_CLUSTER_BYTES == cluster;
            if (fits || cluster + 1 == self.end) && self.count_again(cluster) {
                if !fits {
                    self.allocate(1, sink)?;
                }
                return Ok(host);
            }
        }
        self.allocate(1, sink)
    }

    /// Counts one more reference to `cluster`. Returns false if its block was already written, or
    /// if it cannot count any further.
    fn count_again(&mut self, cluster: u64) -> bool {
        let is_open = cluster / BLOCK_COUNTS == (self.end - 1) / BLOCK_COUNTS;
        let count = index_in_block(cluster).and_then(|index| self.counts.get_mut(index));
        match count {
            Some(count) if is_open && *count < u16::MAX => {
                *count += 1;
                true
            }
            _ => false,
        }
    }

    /// Counts the first reference to the next cluster.
    fn count_next<S: ImageSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        if self.end > 0 && self.end.is_multiple_of(BLOCK_COUNTS) {
            self.write_block(sink)?;
        }
        if let Some(count) = index_in_block(self.end).and_then(|index| self.counts.get_mut(index)) {
            *count = 1;
        }
        self.end += 1;
        Ok(())
    }

    fn write_block<S: ImageSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        let counts = std::mem::replace(&mut self.counts, empty_counts());
        let Some(host) = self.block_host.take() else {
            return Ok(());
        };
        self.table.push(host.0);
        sink.write_at(host, counts.into_iter().flat_map(u16::to_be_bytes).collect())
    }

    /// Uses `clusters` allocated clusters at `host` for the refcount table.
    pub(super) fn reserve_table(&mut self, host: Host, clusters: u64) {
        self.reserved = Some((host, clusters));
    }

    /// Writes the rest of the refcounts. Returns the length of the image, and the offset and the
    /// clusters of the refcount table.
    pub(super) fn finish<S: ImageSink>(
        mut self,
        sink: &mut S,
    ) -> Result<(u64, (Host, u64)), S::Error> {
        let (host, clusters) = match self.reserved {
            Some(reserved) => reserved,
            None => {
                // The table itself may need one more block.
                let clusters = table_clusters(self.end / BLOCK_COUNTS + 2);
                (self.allocate(clusters, sink)?, clusters)
            }
        };
        self.write_block(sink)?;
        sink.write_at(host, table_bytes(&self.table))?;
        Ok((self.image_bytes(), (host, clusters)))
    }
}

/// Returns the most clusters that the refcount table of an image of `disk_bytes` bytes takes.
pub(super) fn most_table_clusters(disk_bytes: u64) -> u64 {
    // An image without compression is the largest: besides the data it holds an L2 table for each
    // 8192 clusters and a block for each 32,768, which together are less than one in 4096.
    let clusters = disk_bytes.div_ceil(WRITTEN_CLUSTER_BYTES);
    table_clusters((clusters + clusters / 4096) / BLOCK_COUNTS + 2)
}

/// Returns the offset of a cluster.
const fn host_of(cluster: u64) -> Host {
    Host(cluster * WRITTEN_CLUSTER_BYTES)
}

fn index_in_block(cluster: u64) -> Option<usize> {
    usize::try_from(cluster % BLOCK_COUNTS).ok()
}

fn empty_counts() -> Vec<u16> {
    vec![0; usize::try_from(BLOCK_COUNTS).unwrap_or(0)]
}

/// Returns the bytes of a table.
pub(super) fn table_bytes(entries: &[u64]) -> Bytes {
    entries.iter().flat_map(|entry| entry.to_be_bytes()).collect()
}
