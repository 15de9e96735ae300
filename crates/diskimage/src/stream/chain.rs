//! Merges the maps of a chain of images: a full image and its deltas, where each byte of the disk
//! comes from the newest image that defines it.
//!
//! The images, one after the other, are read as one stream. The merged map refers to offsets in
//! that stream, so the engine reads a chain as if it were a single image.

use std::collections::BTreeMap;
use std::ops::Range;

use super::ImageStream;
use super::builder::MapBuilder;
use crate::layout::ImageLayout;
use crate::memory::{ImageMemory, MemoryAccount};
use crate::offsets::{Guest, Host};
use crate::wanted_ranges::{MAX_RUN, RangeBatch, RangeRole, WantedQueue, WantedRange, bytes_of};
use crate::{Error, Format};

/// Bytes of memory that a clipped cluster takes, apart from its parts.
const CLIPPED_BYTES: u64 = 128;

/// Compressed clusters that newer images hide partly, with the parts that are still visible.
pub struct ClippedClusters {
    /// The key is the beginning of the image in the stream, and the guest offset of the cluster.
    clusters: BTreeMap<(Host, Guest), Vec<Range<Guest>>>,
    bytes: u64,
    account: MemoryAccount,
}

impl ClippedClusters {
    /// Returns the visible parts of the cluster at `guest` of the image that begins at
    /// `image_start`. `None` if the whole cluster is visible.
    pub fn visible_parts(&self, image_start: Host, guest: Guest) -> Option<&[Range<Guest>]> {
        self.clusters.get(&(image_start, guest)).map(Vec::as_slice)
    }

    fn add_cluster(
        &mut self,
        image_start: Host,
        guest: Guest,
        parts: Vec<Range<Guest>>,
    ) -> Result<(), Error> {
        self.bytes += CLIPPED_BYTES + bytes_of::<Range<Guest>>(parts.capacity());
        self.account.hold_bytes(self.bytes)?;
        self.clusters.insert((image_start, guest), parts);
        Ok(())
    }
}

/// The merged map of a chain. Takes the maps from the newest image to the oldest, and keeps
/// from each only the parts that newer images do not define.
pub struct ChainMap {
    wants: WantedQueue,
    /// Guest ranges that the images so far define, in ascending order. No two touch.
    covered: Vec<Range<Guest>>,
    clipped: ClippedClusters,
    /// The layout of the newest image.
    newest: Option<Box<dyn ImageLayout>>,
    /// Bytes of the disk of the newest image, which is the disk of the chain.
    virtual_size: u64,
    largest_cluster: u64,
    account: MemoryAccount,
}

/// An image of the chain, while its map is merged.
struct ChainedImage {
    /// Offset of the image in the stream.
    start: Host,
    end: Host,
    virtual_size: u64,
    cluster: u64,
}

impl ChainMap {
    /// Creates an empty map. The map itself is charged to `memory`, and the list of clipped
    /// clusters to `clipped_memory`.
    pub fn new(
        memory: impl ImageMemory + 'static,
        clipped_memory: impl ImageMemory + 'static,
    ) -> Self {
        Self {
            wants: WantedQueue::default(),
            covered: Vec::new(),
            clipped: ClippedClusters {
                clusters: BTreeMap::new(),
                bytes: 0,
                account: MemoryAccount::new(clipped_memory),
            },
            newest: None,
            virtual_size: 0,
            largest_cluster: 0,
            account: MemoryAccount::new(memory),
        }
    }

    /// Adds the complete map of the next older image, whose first byte is at `start` of the
    /// stream.
    pub fn add_older(&mut self, map: MapBuilder, start: Host) -> Result<(), Error> {
        // The account keeps the memory of the old map charged until the map is dropped.
        let MapBuilder { layout, image_end, mut wants, account: _account, .. } = map;
        let facts = layout.head_facts();
        let image = ChainedImage {
            start,
            end: start.saturating_add(image_end.0),
            virtual_size: facts.virtual_size,
            cluster: facts.clusters.map_or(0, |clusters| clusters.size),
        };
        if self.newest.is_none() {
            self.virtual_size = image.virtual_size;
        }
        self.largest_cluster = self.largest_cluster.max(image.cluster);
        let mut batch = RangeBatch::with_room(self.account.available_beside(self.memory_bytes()));
        let mut defined = Vec::new();
        while let Some(want) = wants.pop_until(Host(u64::MAX)) {
            self.add_visible(&image, &want, &mut batch, &mut defined)?;
        }
        for range in layout.zero_ranges() {
            push_range(&mut batch, &mut defined, range.clone());
        }
        self.newest.get_or_insert(layout);
        self.end_image(batch, defined)
    }

    /// Adds a raw disk of `bytes` bytes as the oldest image, at `start` of the stream.
    pub fn add_raw(&mut self, bytes: u64, start: Host) -> Result<(), Error> {
        let end = start.saturating_add(bytes);
        let image = ChainedImage { start, end, virtual_size: bytes, cluster: 0 };
        let mut batch = RangeBatch::with_room(self.account.available_beside(self.memory_bytes()));
        let mut defined = Vec::new();
        let mut at = 0;
        while at < bytes {
            let length = u32::try_from((bytes - at).min(MAX_RUN)).unwrap_or(u32::MAX);
            let want = WantedRange::new_data(Host(at), length, Guest(at));
            self.add_visible(&image, &want, &mut batch, &mut defined)?;
            at += u64::from(length);
        }
        self.end_image(batch, defined)
    }

    /// Adds to `batch` the parts of `want` that newer images do not define, and adds to `defined`
    /// all guest bytes that `want` defines.
    fn add_visible(
        &mut self,
        image: &ChainedImage,
        want: &WantedRange,
        batch: &mut RangeBatch,
        defined: &mut Vec<Range<Guest>>,
    ) -> Result<(), Error> {
        let guest = want.guest_offset();
        let host = image.start.saturating_add(want.host.0);
        let length =
            if want.role == RangeRole::Compressed { image.cluster } else { want.length.into() };
        let range = guest..guest.saturating_add(length).min(Guest(image.virtual_size));
        push_range(batch, defined, range.clone());
        if want.role != RangeRole::Compressed {
            for part in visible_parts(&self.covered, range) {
                let skip = part.start - guest;
                batch.push_data(
                    host.saturating_add(skip),
                    part.end - part.start,
                    RangeRole::Data,
                    part.start,
                );
            }
            return self.check_room(batch);
        }
        let parts: Vec<_> = visible_parts(&self.covered, range).collect();
        if parts.is_empty() {
            return Ok(());
        }
        // The stored length is rounded up to sectors. It is cut at the end of the image, because
        // the next image follows in the stream.
        let stored = image.end.0.saturating_sub(host.0).min(want.length.into());
        batch.push_data(host, stored, RangeRole::Compressed, guest);
        self.check_room(batch)?;
        let whole_end = guest.saturating_add(length).min(Guest(self.virtual_size));
        if parts[..] != [guest..whole_end] {
            self.clipped.add_cluster(image.start, guest, parts)?;
        }
        Ok(())
    }

    fn check_room(&self, batch: &RangeBatch) -> Result<(), Error> {
        if batch.is_exceeded() { Err(self.account.limit_error()) } else { Ok(()) }
    }

    /// Merges the ranges of one image into the map.
    fn end_image(&mut self, batch: RangeBatch, defined: Vec<Range<Guest>>) -> Result<(), Error> {
        self.check_room(&batch)?;
        let all = self.covered.len() + defined.len();
        let merging = bytes_of::<Range<Guest>>(defined.capacity() + 2 * all);
        self.account.hold_bytes(self.memory_bytes() + batch.memory_bytes() + merging)?;
        self.wants.add_sorted(batch.into_sorted(Format::Qcow2)?);
        self.covered.reserve_exact(defined.len());
        self.covered.extend(defined);
        self.covered.sort_by_key(|range| range.start);
        self.covered.dedup_by(|next, before| {
            let touches = next.start <= before.end;
            if touches {
                before.end = before.end.max(next.end);
            }
            touches
        });
        self.covered.shrink_to_fit();
        self.account.hold_bytes(self.memory_bytes())
    }

    fn memory_bytes(&self) -> u64 {
        self.wants.memory_bytes() + bytes_of::<Range<Guest>>(self.covered.capacity())
    }

    /// Returns the stream that converts the chain, and the clusters of which only a part is
    /// visible. `None` if the newest image is missing.
    pub fn into_stream(self) -> Option<(ImageStream, ClippedClusters)> {
        let mut stream = ImageStream::from_map(self.newest?, self.wants, self.account);
        stream.capture_limit = super::capture_limit(self.largest_cluster);
        Some((stream, self.clipped))
    }
}

/// Adds `range` to `defined`, whose memory is charged to `batch`.
fn push_range(batch: &mut RangeBatch, defined: &mut Vec<Range<Guest>>, range: Range<Guest>) {
    if let Some(last) = defined.last_mut()
        && last.end == range.start
    {
        last.end = range.end;
    } else if batch.make_room(defined) {
        defined.push(range);
    }
}

/// Returns the parts of `range` that are not in `covered`, in ascending order.
fn visible_parts(
    covered: &[Range<Guest>],
    range: Range<Guest>,
) -> impl Iterator<Item = Range<Guest>> {
    let first = covered.partition_point(|hidden| hidden.end <= range.start);
    let over = covered[first..].iter().take_while(move |hidden| hidden.start < range.end);
    let ends = over.cloned().chain([range.end..range.end]);
    let mut at = range.start;
    ends.filter_map(move |hidden| {
        let part = at..hidden.start;
        at = hidden.end;
        (part.start < part.end).then_some(part)
    })
}

#[cfg(test)]
mod tests;
