//! Reads an image with a known map in the order of the disk, with range requests.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use codec::encode::blocks::BlockOutlet;
use codec::inflate::Inflater;
use codec::input::TransferInput;
use diskimage::{CompressedClusters, Format, GuestOrderMap, GuestRange};
use stream::error::Error;
use stream::meter::{MeterReadings, RateLimiter, map_source_error};
use stream::min_speed::{MinSpeedCheck, SpeedLimit};
use stream::observe::Stage;
use stream::options::ReadOptions;
use stream::source::Source;

use crate::format::MappedImage;

/// Most bytes of the image that are read with one request.
const REQUEST_BYTES: u64 = 4 << 20;

/// Ranges that follow each other on the disk, and are closer than this in the image, are read with
/// one request, because a request costs more than the unneeded bytes between them.
const REQUEST_GAP_BYTES: u64 = 64 << 10;

/// Maximum number of clusters in one request. Limits the list for images with tiny clusters.
const REQUEST_CLUSTERS: usize = 4096;

/// Passes the data of `mapped` to `blocks`. Returns the number of source bytes that were read.
pub(super) fn pass_mapped(
    mapped: MappedImage,
    source: &dyn Source,
    input: &mut TransferInput,
    reading: &ReadOptions,
    blocks: &mut BlockOutlet<'_, '_>,
) -> Result<u64, Error> {
    let facts = mapped.facts.clone();
    let map = mapped.into_guest_order()?;
    blocks.limit = facts.virtual_size;
    let image_bytes = source.total_bytes().unwrap_or(0);
    let mut reader = OrderedReader {
        source,
        image_bytes,
        request_bytes: request_bytes(reading.speed_limit),
        read_bytes: 0,
        passed_bytes: 0,
        total_bytes: map.guest_ranges().map(|range| range.stored_bytes).sum(),
        format: facts.format,
        clusters: facts.clusters,
        inflater: Inflater::default(),
        pace: reading.limit_rate.map(RateLimiter::new),
        floor: reading.speed_limit.map(MinSpeedCheck::new),
        readings: input.readings(),
        reading,
        blocks,
    };
    let step = reader.request_bytes;
    let mut group: Vec<GuestRange> = Vec::new();
    for range in map.guest_ranges().flat_map(|range| split_range(range, step)) {
        if !reader.belongs_to(&group, &range) {
            reader.pass_group(&map, &group)?;
            group.clear();
        }
        group.push(range);
    }
    reader.pass_group(&map, &group)?;
    Ok(reader.read_bytes)
}

/// Returns the size of a large request. A [`MinSpeedCheck`] counts a slow request as one pause, so
/// a request holds only the bytes that are due in a quarter of the limit's time.
fn request_bytes(limit: Option<SpeedLimit>) -> u64 {
    let due = limit.map_or(u128::MAX, |limit| {
        u128::from(limit.bytes_per_second.get()).saturating_mul(limit.time.as_millis()) / 4000
    });
    u64::try_from(due).unwrap_or(u64::MAX).clamp(REQUEST_GAP_BYTES, REQUEST_BYTES)
}

/// Splits a long run of data into ranges of `request_bytes`.
fn split_range(range: GuestRange, request_bytes: u64) -> impl Iterator<Item = GuestRange> {
    let step = if range.is_compressed { u64::MAX } else { request_bytes };
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

struct OrderedReader<'r, 'o, 's> {
    source: &'r dyn Source,
    image_bytes: u64,
    request_bytes: u64,
    read_bytes: u64,
    /// Bytes of the image that hold data, so far and in total. Unlike the bytes that are read, they
    /// have a known total.
    passed_bytes: u64,
    total_bytes: u64,
    format: Format,
    clusters: Option<CompressedClusters>,
    inflater: Inflater,
    pace: Option<RateLimiter>,
    floor: Option<MinSpeedCheck>,
    readings: Arc<MeterReadings>,
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
            && next.end.max(end) - first.host.0 <= self.request_bytes
    }

    /// Reads `group` with one request and passes it on, with the zeros before each range.
    fn pass_group(&mut self, map: &GuestOrderMap, group: &[GuestRange]) -> Result<(), Error> {
        let Some(first) = group.first() else {
            return Ok(());
        };
        let start = first.host.0;
        let end = group.iter().map(|range| self.host_range(range).end).max().unwrap_or(start);
        self.reading.check_stop()?;
        let asked = Instant::now();
        let read = self.readings.time_stage(Stage::Source, || self.source.read_range(start..end));
        let bytes = read.map_err(map_source_error)?;
        if let Some(floor) = &mut self.floor {
            floor.record_received(end - start, asked.elapsed())?;
        }
        if let Some(pace) = &mut self.pace {
            let began = Instant::now();
            pace.wait_for_bytes(end - start, &self.reading.stop, |_| ())?;
            self.readings.pass_over(began.elapsed());
        }
        self.read_bytes += end - start;
        self.passed_bytes += group.iter().map(|range| range.stored_bytes).sum::<u64>();
        self.reading.observer.source_position(self.passed_bytes, Some(self.total_bytes));
        for range in group {
            let host = self.host_range(range);
            let at = |offset: u64| usize::try_from(offset - start).unwrap_or(usize::MAX);
            let stored = bytes.slice(at(host.start)..at(host.end));
            let hole = range.guest.0.checked_sub(self.blocks.position());
            let hole = hole.ok_or_else(|| {
                self.format.entangled_error("two clusters overlap on the disk", range.host)
            });
            self.blocks.append_zeros(hole?)?;
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
        let payload = map.compressed_payload(range.guest, stored)?;
        let Self { inflater, clusters, blocks, .. } = self;
        let cluster = inflater.inflate_to_buffer(*clusters, range.guest, &payload, blocks.limit)?;
        Ok(blocks.append_data(cluster)?)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_source_slower_than_the_limit_is_noticed() {
        for bytes_per_second in [1000, 4096, 20_000, 1 << 20] {
            let limit = SpeedLimit {
                bytes_per_second: NonZeroU64::new(bytes_per_second).unwrap(),
                time: Duration::from_secs(600),
            };
            let bytes = request_bytes(Some(limit));
            for percent in [110, 300, 100_000] {
                let time = Duration::from_millis(bytes * 10 * percent / bytes_per_second);
                let mut floor = MinSpeedCheck::new(limit);
                let is_noticed = (0..1000).any(|_| floor.record_received(bytes, time).is_err());
                assert!(is_noticed, "{bytes_per_second} {percent}");
            }
        }
        assert_eq!(request_bytes(None), REQUEST_BYTES);
    }
}
