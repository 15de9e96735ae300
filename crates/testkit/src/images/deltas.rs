//! Deltas: images that store only their differences from an existing disk.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::edits::{grains, line, pattern, qemu_io, sectors};
use super::{Compression, Spec, Version, run_qemu_img};
use crate::fail::OrFail;
use crate::random::Random;
use crate::{disk, tools};

/// Number of edits of each kind in a delta.
const EDITS: u64 = 40;

/// A delta, its base, and the disk that both make up together.
#[derive(Debug, Clone)]
pub struct Delta {
    /// The raw base disk. The delta refers to it by its full path.
    pub base: PathBuf,
    /// The delta image.
    pub qcow2: PathBuf,
    /// The result of `qemu-img convert -O raw`.
    pub raw: PathBuf,
    /// Size of the disk in bytes.
    pub virtual_size: u64,
    /// Describes the delta, for messages.
    pub name: String,
}

impl Spec {
    /// Builds a delta `folder/name.qcow2` on top of a new disk `folder/name.base` of `base_size`
    /// bytes, which has no zero blocks. The spec's content is ignored: the delta gets writes
    /// (compressed ones too if the spec asks for them), zeros and discards.
    pub fn build_delta(&self, base_size: u64, folder: &Path, name: &str) -> Delta {
        let base = folder.join(name).with_extension("base");
        std::fs::write(&base, disk::content(self.seed, base_size)).or_fail(base.display());
        self.build_delta_to(&base, folder, name)
    }

    /// Like [`build_delta`](Self::build_delta), on top of an existing raw disk.
    pub fn build_delta_to(&self, base: &Path, folder: &Path, name: &str) -> Delta {
        assert!(self.is_valid(), "{self} cannot exist");
        let qcow2 = folder.join(name).with_extension("qcow2");
        let backing = format!("backing_file={},backing_fmt=raw,{}", base.display(), self.options());
        let size = self.virtual_size.to_string();
        run_qemu_img(&["create", "-q", "-f", "qcow2", "-o", &backing], &[&qcow2], &[&size]);
        let mut random = Random::new(self.seed ^ 0xDE17A);
        qemu_io(&qcow2, &(compressed(self, &mut random) + &edits(self, &mut random)));
        let mut spec = self.clone();
        if let Some(size) = self.resized_to {
            run_qemu_img(&["resize", "-q", "-f", "qcow2"], &[&qcow2], &[&size.to_string()]);
            spec.virtual_size = size;
            qemu_io(&qcow2, &edits(&spec, &mut random));
        }
        let raw = folder.join(name).with_extension("raw");
        assert!(tools::qemu_converts("qcow2", &qcow2, &raw), "qemu-img cannot convert {self}");
        Delta {
            base: base.to_owned(),
            qcow2,
            raw,
            virtual_size: spec.virtual_size,
            name: format!("delta, {self}"),
        }
    }
}

impl Delta {
    /// The file name of the base in the delta's header.
    pub fn base_name(&self) -> String {
        let name = self.base.file_name().or_fail("a file has a name");
        name.to_string_lossy().into_owned()
    }

    /// Changes the file name of the base in the delta's header, whether or not that file exists.
    pub fn rename_base(&self, name: &str) {
        let args = ["rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", name];
        run_qemu_img(&args, &[&self.qcow2], &[]);
    }
}

/// Compressed writes to about every fourth cluster.
fn compressed(spec: &Spec, random: &mut Random) -> String {
    let mut script = String::new();
    if spec.compression == Compression::Plain {
        return script;
    }
    let clusters = spec.virtual_size / spec.cluster_size;
    let step = clusters.div_ceil(EDITS * 4).max(1);
    let mut at = random.below(4) * step;
    while at < clusters {
        let offset = at * spec.cluster_size;
        line(
            &mut script,
            format_args!("write -c -P {} {offset} {}", pattern(random), spec.cluster_size),
        );
        at += step * (1 + random.below(6));
    }
    script
}

/// Writes, zeros and discards in random order, of whole clusters and subclusters and of ranges of
/// sectors.
fn edits(spec: &Spec, random: &mut Random) -> String {
    let grain = match spec.extended_l2 {
        true => spec.cluster_size / 32,
        false => spec.cluster_size,
    };
    let mut script = String::new();
    for _ in 0..EDITS {
        let command = match random.below(if spec.version == Version::V2 { 4 } else { 5 }) {
            0 | 1 => format!("write -P {}", pattern(random)),
            2 => "write -z".to_owned(),
            3 => "write -z -u".to_owned(),
            // Version 2 has no zero clusters, so qemu refuses a discard that would reveal the
            // base.
            _ => "discard".to_owned(),
        };
        let (offset, length) = match random.below(3) {
            0 => sectors(spec, random, 96),
            _ => grains(spec, random, grain, 4),
        };
        writeln!(script, "{command} {offset} {length}").ok();
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::Content;

    #[test]
    #[ignore = "tools: qemu-img, qemu-io"]
    fn a_delta_keeps_zeroes_and_changes_parts_of_its_base() {
        let folder = tempfile::tempdir().unwrap();
        let spec = Spec {
            virtual_size: 8 << 20,
            cluster_size: 4096,
            resized_to: Some(9 << 20),
            ..Spec::new(Content::Empty)
        };
        let delta = spec.build_delta(7 << 20, folder.path(), "delta");
        assert_eq!(delta.base_name(), "delta.base");
        let (base, disk) =
            (std::fs::read(&delta.base).unwrap(), std::fs::read(&delta.raw).unwrap());
        assert_eq!((disk.len(), delta.virtual_size), (9 << 20, 9 << 20));
        let blocks = |bytes: &[u8]| bytes.chunks(4096).map(<[u8]>::to_vec).collect::<Vec<_>>();
        let pairs = blocks(&base).into_iter().zip(blocks(&disk));
        let (mut kept, mut hidden, mut changed) = (0, 0, 0);
        for (before, after) in pairs {
            match () {
                () if before == after => kept += 1,
                () if after.iter().all(|byte| *byte == 0) => hidden += 1,
                () => changed += 1,
            }
        }
        assert!(kept > 100 && hidden > 20 && changed > 20, "{kept} {hidden} {changed}");
    }
}
