//! Reads an image with a known map in the order of the disk, with range requests.

use std::ops::Range;

use bytes::Bytes;
use diskimage::{CompressedClusters, Error as ImageError, GuestOrderMap, GuestRange};

use super::blocks::BlockOutlet;
use crate::disk::{Inflater, Writer};
use crate::error::{Error, FormatError};
use crate::format::MappedImage;
use crate::input::TransferInput;
use crate::meter::{RateLimiter, map_source_error};
use crate::observe::Stage;
use crate::options::ReadOptions;
use crate::source::Source;

/// Bytes of the image that are read with one request.
const REQUEST_BYTES: u64 = 4 << 20;

/// Ranges that follow each other on the disk, and are closer than this in the image, are read with
/// one request, because a request costs more than the unneeded bytes between them.
const REQUEST_GAP_BYTES: u64 = 64 << 10;

/// Maximum number of clusters in one request. Limits the list for images with tiny clusters.
const REQUEST_CLUSTERS: usize = 4096;

/// Passes the data of `mapped` to `blocks`.
pub(super) fn pass_mapped(
    mapped: MappedImage,
    source: &dyn Source,
    input: &mut TransferInput,
    reading: &ReadOptions,
    blocks: &mut BlockOutlet<'_, '_>,
) -> Result<(), Error> {
    let facts = mapped.facts.clone();
    let map = mapped.into_guest_order()?;
    blocks.limit = facts.virtual_size;
    let image_bytes = source.total_bytes().unwrap_or(0);
    let mut reader = OrderedReader {
        source,
        image_bytes,
        read_bytes: 0,
        clusters: facts.clusters,
        inflater: Inflater::new(),
        cluster: Vec::new(),
        pace: reading.limit_rate.map(RateLimiter::new),
        reading,
        blocks,
    };
    let readings = input.readings();
    let mut group: Vec<GuestRange> = Vec::new();
    for range in map.guest_ranges().flat_map(split_range) {
        if !reader.belongs_to(&group, &range) {
            reader.pass_group(&map, &group, |work| readings.time_stage(Stage::Source, work))?;
            group.clear();
        }
        group.push(range);
    }
    reader.pass_group(&map, &group, |work| readings.time_stage(Stage::Source, work))
}

/// Splits a long run of data into ranges of one request each.
fn split_range(range: GuestRange) -> impl Iterator<Item = GuestRange> {
    let step = if range.is_compressed { u64::MAX } else { REQUEST_BYTES };
    let count = range.stored_bytes.div_ceil(step);
    (0..count).map(move |index| {
        let skip = index * step;
        GuestRange {
            guest: range.guest + skip,
            host: range.host + skip,
            stored_bytes: (range.stored_bytes - skip).min(step),
            ..range
        }
    })
}

/// Runs the read of one request and measures its time.
type TimedRead<'t> = &'t mut dyn FnMut() -> Result<Bytes, Error>;

struct OrderedReader<'r, 'o, 's> {
    source: &'r dyn Source,
    image_bytes: u64,
    read_bytes: u64,
    clusters: Option<CompressedClusters>,
    inflater: Inflater,
    /// The last inflated cluster.
    cluster: Vec<u8>,
    pace: Option<RateLimiter>,
    reading: &'r ReadOptions,
    blocks: &'r mut BlockOutlet<'o, 's>,
}

impl OrderedReader<'_, '_, '_> {
    /// Returns the bytes of the image that hold `range`.
    fn host_range(&self, range: &GuestRange) -> Range<u64> {
        let end = range.host.0.saturating_add(range.stored_bytes).min(self.image_bytes);
        range.host.0..end.max(range.host.0)
    }

    /// Returns true if one request can read `range` together with `group`.
    fn belongs_to(&self, group: &[GuestRange], range: &GuestRange) -> bool {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            return true;
        };
        // Compressed clusters share their last sector with the next one.
        let end = self.host_range(last).end;
        let next = self.host_range(range);
        group.len() < REQUEST_CLUSTERS
            && next.start >= last.host.0
            && next.start <= end.saturating_add(REQUEST_GAP_BYTES)
            && next.end.max(end) - first.host.0 <= REQUEST_BYTES
    }

    /// Reads `group` with one request and passes it on, with the zeros before each range.
    fn pass_group(
        &mut self,
        map: &GuestOrderMap,
        group: &[GuestRange],
        timed: impl FnOnce(TimedRead<'_>) -> Result<Bytes, Error>,
    ) -> Result<(), Error> {
        let Some(first) = group.first() else {
            return Ok(());
        };
        let start = first.host.0;
        let end = group.iter().map(|range| self.host_range(range).end).max().unwrap_or(start);
        self.reading.check_stop()?;
        let source = self.source;
        let bytes = timed(&mut || source.read_range(start..end).map_err(map_source_error))?;
        if let Some(pace) = &mut self.pace {
            pace.wait_for_bytes(end - start, &self.reading.stop, |_| ())?;
        }
        self.read_bytes += end - start;
        self.reading.observer.source_position(self.read_bytes, None);
        for range in group {
            let host = self.host_range(range);
            let at = |offset: u64| usize::try_from(offset - start).unwrap_or(usize::MAX);
            let stored = bytes.slice(at(host.start)..at(host.end));
            let hole = range.guest.0.checked_sub(self.blocks.position());
            let format = map.head_facts().format;
            let twice = || ImageError::TooEntangled {
                format,
                what: "two clusters overlap on the disk",
                offset: range.host,
            };
            self.blocks.append_zeros(hole.ok_or_else(twice)?)?;
            if range.is_compressed {
                self.pass_compressed(map, range, stored)?;
            } else {
                self.blocks.append_data(&stored)?;
            }
        }
        Ok(())
    }

    fn pass_compressed(
        &mut self,
        map: &GuestOrderMap,
        range: &GuestRange,
        stored: Bytes,
    ) -> Result<(), Error> {
        let Some(clusters) = self.clusters else {
            return Err(Writer::compression_error(range.guest));
        };
        let size = usize::try_from(clusters.size).unwrap_or(0);
        self.cluster.resize(size, 0);
        let needed = self.blocks.limit.saturating_sub(range.guest.0);
        let needed = usize::try_from(needed).unwrap_or(usize::MAX).min(size);
        let payload = map.compressed_payload(range.guest, stored)?;
        self.inflater.inflate(clusters.compression, &payload, &mut self.cluster, needed).map_err(
            |reason| {
                let (guest, cluster_size) = (range.guest, clusters.size);
                FormatError::from(ImageError::CompressedCluster { guest, cluster_size, reason })
            },
        )?;
        Ok(self.blocks.append_data(&self.cluster)?)
    }
}
