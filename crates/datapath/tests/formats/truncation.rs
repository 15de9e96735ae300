//! Checks that a truncated image or compressed disk is an error, unless the whole disk is in what
//! is left, or qemu-img reads the same from it.

use std::fmt;

use bytes::Bytes;
use diskimage::Format;
use testkit::cases::check_all;
use testkit::images::{Compression, Content, Spec};
use testkit::{disk, tools};

use crate::check::{ask_qemu, import, is_itself};
use crate::common::fast_folder;
use crate::common::objects::{Object, image};
use crate::samples::{Sample, samples};

/// Shorter prefixes cannot be told from a tiny raw disk: the magic numbers of the compressed
/// formats and what must follow them take up to this many bytes.
const MAGIC_BYTES: usize = 18;

/// Small objects are cut at every byte within this distance of their ends…
const EDGE_BYTES: usize = 192;

/// …and all objects at every multiple of this.
const SECTOR: usize = 512;

/// Between headers and tables, samples are cut at about this many places, at multiples of a sector.
const CUTS: usize = 200;

struct Cut {
    object: Object,
    /// The format in qemu-img; `None` if it is compressed.
    format: Option<&'static str>,
    at: usize,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the first {} bytes of {}", self.at, self.object.name)
    }
}

fn check(cut: &Cut) {
    let prefix = cut.object.bytes.slice(..cut.at);
    for ranged in [false, true] {
        let Some(outcome) = import(&prefix, ranged) else {
            continue;
        };
        // A truncated signature is not recognised, and a fixed VHD without its footer is a raw
        // disk.
        let is_raw = outcome.format == Format::Raw && is_itself(&prefix, &outcome.disk);
        if is_raw && cut.format.is_some_and(|format| format != "qcow2") {
            continue;
        }
        // If qemu-img refuses the image, the missing part must not contain any byte of the disk.
        // It may refuse one because of refcounts, which we do not need.
        let theirs = cut.format.and_then(|format| ask_qemu(&prefix, format));
        let expected = theirs.as_deref().unwrap_or(&cut.object.disk);
        assert!(outcome.disk == expected, "a false success, ranged: {ranged}");
        let may_be_short = cut.format.is_some_and(|format| format != "qcow2");
        assert!(may_be_short || outcome.disk == cut.object.disk, "a false success of both");
    }
}

/// Returns cuts within `edge` bytes of both ends, and at sectors.
fn cuts(object: &Object, format: Option<&'static str>, edge: usize) -> Vec<Cut> {
    let length = object.bytes.len();
    let is_tried = |at: &usize| *at < edge || *at + edge >= length || at.is_multiple_of(SECTOR);
    let places = (MAGIC_BYTES..=length).filter(is_tried);
    places.map(|at| Cut { object: object.clone(), format, at }).collect()
}

/// Returns cuts at every byte of the metadata, at sectors elsewhere, and at half sectors near the
/// end.
fn cuts_of_sample(sample: &Sample) -> Vec<Cut> {
    let length = sample.object.bytes.len();
    let step = (length / CUTS).next_multiple_of(SECTOR);
    let mut places: Vec<usize> = sample.metadata.iter().cloned().flatten().collect();
    places.extend((SECTOR..length).step_by(step));
    places.extend((length.saturating_sub(4 * SECTOR)..length).step_by(SECTOR / 2));
    places.sort_unstable();
    places.dedup();
    places.retain(|at| *at > 0);
    let format = Some(sample.format);
    places.into_iter().map(|at| Cut { object: sample.object.clone(), format, at }).collect()
}

#[test]
#[ignore = "tools: bzip2, xz, zstd"]
fn truncated_compressed_disks_are_refused() {
    let disk = Bytes::from(disk::sparse_content(3, 64 << 10, 3));
    let raw = Object { name: "a disk".into(), bytes: disk.clone(), disk };
    for program in tools::COMPRESSORS {
        check_all(cuts(&raw.packed(program), None, EDGE_BYTES), check);
    }
}

#[test]
#[ignore = "slow: 24 s of CPU time"]
fn truncated_qcow2_images_are_refused() {
    // Few clusters and much metadata.
    for (cluster_size, kib) in [(512, 96), (2048, 128), (16384, 256), (65536, 512)] {
        let folder = fast_folder();
        let plain = Spec { cluster_size, virtual_size: kib << 10, ..Spec::new(Content::Sparse) };
        for spec in [
            plain.clone(),
            Spec { content: Content::Dense, compression: Compression::Zlib, ..plain },
            Spec { compression: Compression::Zstd, ..plain },
            Spec { content: Content::RandomOrder, extended_l2: cluster_size >= 16384, ..plain },
            Spec { content: Content::ZeroClusters, ..plain },
            Spec { content: Content::Snapshots, ..plain },
        ] {
            let edge = if cluster_size < 4096 { EDGE_BYTES } else { 0 };
            check_all(cuts(&image(&spec, folder.path()), Some("qcow2"), edge), check);
        }
    }
}

#[test]
#[ignore = "slow: 21 s of CPU time"]
fn every_prefix_of_other_images_fails_or_gives_the_disk_that_qemu_reads() {
    for sample in samples() {
        check_all(cuts_of_sample(sample), check);
    }
}
