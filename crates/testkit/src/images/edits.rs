//! Changes to an existing image: writes of a guest, made with `qemu-io`.

use std::fmt::Write;
use std::path::Path;

use super::{Compression, Content, Spec};
use crate::random::Random;
use crate::tools;

/// Number of edits of each kind. There are enough for every kind of table entry, and few enough to
/// be fast.
const EDITS: u64 = 60;

/// Applies the edits that the content of `spec` requires.
pub(super) fn apply(spec: &Spec, qcow2: &Path) {
    let mut random = Random::new(spec.seed ^ 0xED17);
    match spec.content {
        Content::Sparse | Content::Dense | Content::Empty => {}
        Content::ZeroClusters => qemu_io(qcow2, &zeros_and_discards(spec, &mut random)),
        Content::RandomOrder => qemu_io(qcow2, &random_order(spec, &mut random)),
        Content::Snapshots => {
            for snapshot in ["first", "second"] {
                tools::run(
                    "qemu-img",
                    ["snapshot", "-c", snapshot]
                        .map(AsRef::as_ref)
                        .into_iter()
                        .chain([qcow2.as_os_str()]),
                );
                qemu_io(qcow2, &guest_writes(spec, &mut random));
            }
        }
    }
}

/// Writes of a guest that does not know the clusters: ranges of sectors anywhere.
fn guest_writes(spec: &Spec, random: &mut Random) -> String {
    let mut script = String::new();
    for _ in 0..EDITS {
        let (offset, length) = sectors(spec, random, 96);
        line(&mut script, format_args!("write -P {} {offset} {length}", pattern(random)));
    }
    script
}

/// Zeros that keep their cluster allocated, zeros that free it, discards, and writes in between,
/// of whole clusters or subclusters.
fn zeros_and_discards(spec: &Spec, random: &mut Random) -> String {
    let grain = if spec.extended_l2 { spec.cluster_size / 32 } else { spec.cluster_size };
    let mut script = String::new();
    for round in 0..EDITS {
        let (offset, length) = grains(spec, random, grain, 4);
        let command = match round % 4 {
            0 => "write -z".to_owned(),
            1 => "write -z -u".to_owned(),
            2 => "discard".to_owned(),
            _ => format!("write -P {}", pattern(random)),
        };
        line(&mut script, format_args!("{command} {offset} {length}"));
    }
    script
}

/// Writes to about every third cluster in random order. With compression, about half of them are
/// compressed, and guest writes then overwrite some.
fn random_order(spec: &Spec, random: &mut Random) -> String {
    let mut clusters: Vec<u64> =
        (0..spec.virtual_size / spec.cluster_size).filter(|_| random.one_in(3)).collect();
    random.shuffle(&mut clusters);
    clusters.truncate(600);
    let mut script = String::new();
    for cluster in clusters {
        let offset = cluster * spec.cluster_size;
        let compressed = spec.compression != Compression::Plain && random.one_in(2);
        let flag = if compressed { "-c " } else { "" };
        line(
            &mut script,
            format_args!("write {flag}-P {} {offset} {}", pattern(random), spec.cluster_size),
        );
    }
    script + &guest_writes(spec, random)
}

/// A random range of up to `most` sectors within the disk.
pub(super) fn sectors(spec: &Spec, random: &mut Random, most: u64) -> (u64, u64) {
    grains(spec, random, 512, most)
}

/// A random range of up to `most` grains, aligned to the grain and cut at the end of the disk.
pub(super) fn grains(spec: &Spec, random: &mut Random, grain: u64, most: u64) -> (u64, u64) {
    let offset = random.below(spec.virtual_size.div_ceil(grain)) * grain;
    let length = (1 + random.below(most)) * grain;
    (offset, length.min(spec.virtual_size - offset))
}

/// A random byte that is not zero.
pub(super) fn pattern(random: &mut Random) -> u64 {
    1 + random.below(255)
}

pub(super) fn line(script: &mut String, command: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    writeln!(script, "{command}").ok();
}

/// Runs a script of qemu-io commands. qemu-io exits with 0 even if a command fails, so its output
/// is checked.
pub(super) fn qemu_io(qcow2: &Path, script: &str) {
    let args = ["-f", "qcow2", "-t", "unsafe", "-d", "unmap"].map(AsRef::as_ref);
    let output =
        tools::filter("qemu-io", args.into_iter().chain([qcow2.as_os_str()]), script.as_bytes());
    let output = String::from_utf8_lossy(&output);
    assert!(!output.contains("failed"), "qemu-io on {}: {output}", qcow2.display());
}
