//! Changes of an image after it was made: the writes of a guest, played by `qemu-io`.

use std::fmt::Write;
use std::path::Path;

use super::{Compression, Content, Spec};
use crate::random::Random;
use crate::tools;

/// Edits of one kind that an image gets. Enough for every kind of table entry, few enough to take no time.
const EDITS: u64 = 60;

/// Applies what the content of `spec` asks for.
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
                    ["snapshot", "-c", snapshot].map(AsRef::as_ref).into_iter().chain([qcow2.as_os_str()]),
                );
                qemu_io(qcow2, &guest_writes(spec, &mut random));
            }
        }
    }
}

/// Writes of a guest that knows nothing of clusters: any multiple of 512 bytes anywhere.
fn guest_writes(spec: &Spec, random: &mut Random) -> String {
    let mut script = String::new();
    for _ in 0..EDITS {
        let (offset, length) = sectors(spec, random, 96);
        line(&mut script, format_args!("write -P {} {offset} {length}", pattern(random)));
    }
    script
}

/// Zeros that keep their cluster, zeros that give it back and discards, by cluster and by subcluster, each of
/// them now and then written over.
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

/// Every third cluster or so, in random order; with compression about half of them compressed, and some of
/// those written over afterwards as a running guest does.
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
        line(&mut script, format_args!("write {flag}-P {} {offset} {}", pattern(random), spec.cluster_size));
    }
    script + &guest_writes(spec, random)
}

/// A range of up to `most` sectors within the disk.
pub(super) fn sectors(spec: &Spec, random: &mut Random, most: u64) -> (u64, u64) {
    grains(spec, random, 512, most)
}

/// A range of up to `most` grains, aligned to the grain, cut at the end of the disk.
pub(super) fn grains(spec: &Spec, random: &mut Random, grain: u64, most: u64) -> (u64, u64) {
    let offset = random.below(spec.virtual_size.div_ceil(grain)) * grain;
    let length = (1 + random.below(most)) * grain;
    (offset, length.min(spec.virtual_size - offset))
}

/// A byte that is not zero.
pub(super) fn pattern(random: &mut Random) -> u64 {
    1 + random.below(255)
}

pub(super) fn line(script: &mut String, command: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    writeln!(script, "{command}").ok();
}

/// Runs a script of qemu-io commands. qemu-io reports a failed command on its output and still exits with 0.
pub(super) fn qemu_io(qcow2: &Path, script: &str) {
    let args = ["-f", "qcow2", "-t", "unsafe", "-d", "unmap"].map(AsRef::as_ref);
    let output = tools::filter("qemu-io", args.into_iter().chain([qcow2.as_os_str()]), script.as_bytes());
    let output = String::from_utf8_lossy(&output);
    assert!(!output.contains("failed"), "qemu-io on {}: {output}", qcow2.display());
}
