//! Disk images made with `qemu-img` and `qemu-io` at test time, as described by a [`Spec`].

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::fail::OrFail;
use crate::{disk, tools};

mod deltas;
mod edits;
pub mod qcow2;
mod subformats;
pub mod vdi;
pub mod vhd;
pub mod vhdx;
pub mod vmdk;

pub use deltas::Delta;
pub use subformats::{Oracle, SUBFORMATS, Subformat};

/// The smallest cluster size that allows subclusters (qcow2 specification, "Extended L2 Entries").
const EXTENDED_L2_MIN_CLUSTER_BYTES: u64 = 16 << 10;

/// The version field of a qcow2 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// `compat=0.10`
    V2,
    /// `compat=1.1`
    V3,
}

/// How `qemu-img convert` stores the clusters that it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Uncompressed.
    Plain,
    /// Each cluster is deflated.
    Zlib,
    /// Each cluster is a zstd frame.
    Zstd,
}

/// The content of the disk and how it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Islands of data in zeros, converted from raw.
    Sparse,
    /// No zero block at all, converted from raw.
    Dense,
    /// Like `Sparse`, then parts are zeroed with and without unmapping, or discarded.
    ZeroClusters,
    /// Like `Sparse`, with internal snapshots between later writes.
    Snapshots,
    /// Created empty and written in random order.
    RandomOrder,
    /// Nothing is ever written.
    Empty,
}

/// Describes a qcow2 image to build.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Header version.
    pub version: Version,
    /// Cluster size in bytes: a power of two from 512 to 2 MiB.
    pub cluster_size: u64,
    /// How the converted clusters are stored. In [`Content::RandomOrder`] about half of the writes
    /// are compressed.
    pub compression: Compression,
    /// Divides each cluster into 32 subclusters.
    pub extended_l2: bool,
    /// The content of the disk.
    pub content: Content,
    /// Size of the disk in bytes, a multiple of 512.
    pub virtual_size: u64,
    /// Grows the disk to this size afterwards. If that needs more L1 entries, qemu moves the L1
    /// table to the end of the file.
    pub resized_to: Option<u64>,
    /// Width of a reference count in bits, if not qemu's default of 16.
    pub refcount_bits: Option<u32>,
    /// Lets the reference counts lag behind.
    pub lazy_refcounts: bool,
    /// Sets the dirty bit, as after a crash of qemu with lazy reference counts.
    pub dirty: bool,
    /// The value of qemu-img's option `preallocation`.
    pub preallocation: Option<&'static str>,
    /// Seed of the random content. Specs with different seeds give different disks.
    pub seed: u64,
}

impl Spec {
    /// A v3 image with uncompressed 64 KiB clusters and a disk of 24 MiB.
    pub fn new(content: Content) -> Self {
        Self {
            version: Version::V3,
            cluster_size: 64 << 10,
            compression: Compression::Plain,
            extended_l2: false,
            content,
            virtual_size: 24 << 20,
            resized_to: None,
            refcount_bits: None,
            lazy_refcounts: false,
            dirty: false,
            preallocation: None,
            seed: 1,
        }
    }

    /// Returns true if the format allows the combination: zstd, extended L2 entries, lazy or
    /// non-standard reference counts and the dirty bit need v3, and a subcluster has at least 512
    /// bytes.
    pub fn is_valid(&self) -> bool {
        let v3 = self.version == Version::V3;
        let needs_v3 = self.compression == Compression::Zstd
            || self.extended_l2
            || self.lazy_refcounts
            || self.dirty
            || self.refcount_bits.is_some();
        (v3 || !needs_v3)
            && (!self.extended_l2 || self.cluster_size >= EXTENDED_L2_MIN_CLUSTER_BYTES)
    }

    /// Returns every valid combination of version, cluster size, compression, extended L2 entries
    /// and content that the importer's acceptance tests require.
    pub fn matrix() -> Vec<Self> {
        use Content::{Dense, RandomOrder, Snapshots, Sparse, ZeroClusters};
        let mut specs = Vec::new();
        for version in [Version::V2, Version::V3] {
            for cluster_size in [512, 4 << 10, 64 << 10, 2 << 20] {
                for compression in [Compression::Plain, Compression::Zlib, Compression::Zstd] {
                    for extended_l2 in [false, true] {
                        for content in [Sparse, Dense, ZeroClusters, Snapshots, RandomOrder] {
                            // An odd number of sectors, so that the last cluster is always
                            // incomplete.
                            let virtual_size = matrix_virtual_size(cluster_size, content) + 3 * 512;
                            let seed = specs.len() as u64;
                            specs.push(Self {
                                version,
                                cluster_size,
                                compression,
                                extended_l2,
                                virtual_size,
                                seed,
                                ..Self::new(content)
                            });
                        }
                    }
                }
            }
        }
        specs.retain(Self::is_valid);
        specs
    }

    /// Builds the image `folder/name.qcow2` and lets qemu-img convert it to `folder/name.raw`.
    pub fn build(&self, folder: &Path, name: &str) -> Image {
        assert!(self.is_valid(), "{self} cannot exist");
        let qcow2 = folder.join(name).with_extension("qcow2");
        let raw = folder.join(name).with_extension("raw");
        match self.content {
            Content::RandomOrder | Content::Empty => self.create_empty(&qcow2),
            Content::Dense => {
                self.convert(&raw, &disk::content(self.seed, self.virtual_size), &qcow2)
            }
            Content::Sparse | Content::ZeroClusters | Content::Snapshots => {
                self.convert(&raw, &disk::sparse_content(self.seed, self.virtual_size, 8), &qcow2);
            }
        }
        edits::apply(self, &qcow2);
        if let Some(size) = self.resized_to {
            run_qemu_img(&["resize", "-q", "-f", "qcow2"], &[&qcow2], &[&size.to_string()]);
        }
        if self.dirty {
            set_dirty_bit(&qcow2);
        }
        Image::from_qcow2(qcow2, raw, self.to_string())
    }

    fn create_empty(&self, qcow2: &Path) {
        let options = self.options();
        let size = self.virtual_size.to_string();
        run_qemu_img(&["create", "-q", "-f", "qcow2", "-o", &options], &[qcow2], &[&size]);
    }

    /// Writes `bytes` to `raw` and converts that file to `qcow2`. Later `raw` is overwritten with
    /// the converted image.
    fn convert(&self, raw: &Path, bytes: &[u8], qcow2: &Path) {
        std::fs::write(raw, bytes).or_fail(raw.display());
        let options = self.options();
        let mut args = vec!["convert", "-t", "unsafe", "-f", "raw", "-O", "qcow2", "-o", &options];
        if self.compression != Compression::Plain {
            args.push("-c");
        }
        run_qemu_img(&args, &[raw, qcow2], &[]);
    }

    /// The value of qemu-img's `-o`.
    fn options(&self) -> String {
        let mut options = match self.version {
            Version::V2 => "compat=0.10".to_owned(),
            Version::V3 => "compat=1.1".to_owned(),
        };
        options += &format!(",cluster_size={}", self.cluster_size);
        if self.compression == Compression::Zstd {
            options += ",compression_type=zstd";
        }
        if self.extended_l2 {
            options += ",extended_l2=on";
        }
        if let Some(bits) = self.refcount_bits {
            options += &format!(",refcount_bits={bits}");
        }
        if self.lazy_refcounts {
            options += ",lazy_refcounts=on";
        }
        if let Some(preallocation) = self.preallocation {
            options += &format!(",preallocation={preallocation}");
        }
        options
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, cluster_size, compression, content, virtual_size, seed, .. } = self;
        write!(
            f,
            "{version:?} cluster={cluster_size} {compression:?} {content:?} size={virtual_size} seed={seed}"
        )?;
        for (set, label) in [
            (self.extended_l2, "extended_l2"),
            (self.lazy_refcounts, "lazy_refcounts"),
            (self.dirty, "dirty"),
            (self.resized_to.is_some(), "resized"),
        ] {
            if set {
                write!(f, " {label}")?;
            }
        }
        if let Some(bits) = self.refcount_bits {
            write!(f, " refcount_bits={bits}")?;
        }
        self.preallocation.map_or(Ok(()), |how| write!(f, " preallocation={how}"))
    }
}

/// Sizes of the disks in the matrix. Disks with small clusters are smaller, since they have many
/// of them; the whole matrix takes minutes.
fn matrix_virtual_size(cluster_size: u64, content: Content) -> u64 {
    match (cluster_size, content) {
        (..=4096, Content::Dense) => 3 << 20,
        (..=4096, _) => 8 << 20,
        (_, Content::Dense) => 9 << 20,
        (2_097_152.., _) => 40 << 20,
        _ => 24 << 20,
    }
}

/// An image, and the disk that it contains.
#[derive(Debug, Clone)]
pub struct Image {
    /// The image file.
    pub qcow2: PathBuf,
    /// The result of `qemu-img convert -O raw`.
    pub raw: PathBuf,
    /// Size of the disk in bytes.
    pub virtual_size: u64,
    /// Total size of the disk's 4 KiB blocks that are not zero.
    pub data_bytes: u64,
    /// Describes the image, for messages.
    pub name: String,
}

impl Image {
    /// Converts `qcow2` to `raw` with qemu-img and measures the result.
    pub fn from_qcow2(qcow2: PathBuf, raw: PathBuf, name: String) -> Self {
        assert!(tools::qemu_converts("qcow2", &qcow2, &raw), "qemu-img cannot convert {name}");
        let virtual_size = raw.metadata().or_fail(raw.display()).len();
        let data_bytes = disk::data_bytes(&raw);
        Self { qcow2, raw, virtual_size, data_bytes, name }
    }
}

/// Runs qemu-img with `args`, then `files`, then `last`.
fn run_qemu_img(args: &[&str], files: &[&Path], last: &[&str]) {
    let files = files.iter().map(|file| file.as_os_str());
    let words = args.iter().map(AsRef::as_ref).chain(files).chain(last.iter().map(AsRef::as_ref));
    tools::run("qemu-img", words);
}

/// Sets bit 0 of the incompatible features, a big-endian number at bytes 72 to 79 of a v3 header.
fn set_dirty_bit(qcow2: &Path) {
    let file = File::options().read(true).write(true).open(qcow2).or_fail(qcow2.display());
    let mut last = [0];
    file.read_exact_at(&mut last, 79).or_fail(qcow2.display());
    file.write_all_at(&[last[0] | 1], 79).or_fail(qcow2.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_has_every_valid_combination_once() {
        let specs = Spec::matrix();
        // v2: 4 cluster sizes × 2 compressions; v3: 4 × 3, and 2 × 3 with extended L2 entries.
        assert_eq!(specs.len(), (8 + 12 + 6) * 5);
        let names: std::collections::HashSet<_> = specs.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), specs.len());
    }

    #[test]
    #[ignore = "tools: qemu-img, qemu-io"]
    fn images_have_the_features_of_their_spec() {
        let folder = tempfile::tempdir().unwrap();
        let plain = Spec { virtual_size: (1 << 30) + 512, ..Spec::new(Content::Empty) };
        let image =
            Spec { resized_to: Some(3 << 30), dirty: true, refcount_bits: Some(1), ..plain }
                .build(folder.path(), "resized");
        assert_eq!((image.virtual_size, image.data_bytes), (3 << 30, 0));
        let header = std::fs::read(&image.qcow2).unwrap();
        assert_eq!(header[79] & 1, 1, "the dirty bit");
        let l1_offset = u64::from_be_bytes(header[40..48].try_into().unwrap());
        assert!(
            l1_offset >= 4 * (64 << 10),
            "a resize moves the L1 table to the end, it is at {l1_offset}"
        );

        let image = Spec::new(Content::Snapshots).build(folder.path(), "snapshots");
        let header = std::fs::read(&image.qcow2).unwrap();
        assert_eq!(header[60..64], [0, 0, 0, 2], "the number of snapshots");
        assert!(image.data_bytes > 1 << 20, "{} bytes of data", image.data_bytes);
    }
}
