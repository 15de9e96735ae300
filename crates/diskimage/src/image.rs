//! An image whose head has been read.

use crate::layout::ImageLayout;
use crate::qcow2::BackingFile;
use crate::{Error, Format, qcow2, vdi, vhd, vhdx, vmdk};

/// Bytes of the head to pass to [`Image::open`] first. If the image needs more, the call fails
/// with [`Error::ShortHeader`](crate::Error::ShortHeader), which states how many.
pub const HEAD_BYTES: usize = 64 << 10;

/// An image in a format with a map of its clusters. Its header has been validated.
pub struct Image {
    pub(crate) layout: Box<dyn ImageLayout>,
}

/// Facts read from the head of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadFacts {
    /// The format of the image.
    pub format: Format,
    /// Size of the virtual disk in bytes.
    pub virtual_size: u64,
    /// Codec and size of the compressed clusters; `None` if the image cannot contain any.
    pub clusters: Option<CompressedClusters>,
    /// Size in bytes of the unit of allocation: a cluster, block or grain.
    pub cluster_size: Option<u64>,
    /// One-pass reading only: size of the units in which bytes are parked while their guest offset
    /// is unknown. A power of two from 512 bytes to 2 MiB. `None` if nothing is ever parked,
    /// because the guest offset of each byte is known when it arrives.
    pub parking_unit: Option<u64>,
    /// Notable features of the image, for people to read: short noun phrases.
    pub features: Vec<String>,
    /// Number of internal snapshots. Their data is ignored.
    pub snapshots: u32,
    /// An earlier writer marked the image as corrupt. It is read nevertheless.
    pub is_marked_corrupt: bool,
}

impl HeadFacts {
    /// Creates the facts of an image of `format` without special features.
    pub fn new(format: Format, virtual_size: u64) -> Self {
        Self {
            format,
            virtual_size,
            clusters: None,
            cluster_size: None,
            parking_unit: None,
            features: Vec::new(),
            snapshots: 0,
            is_marked_corrupt: false,
        }
    }
}

impl Image {
    /// Reads the head of an image: the first [`HEAD_BYTES`](crate::HEAD_BYTES), or all of a
    /// shorter image. An image that needs a longer head, up to
    /// [`MAX_HEAD_BYTES`](crate::MAX_HEAD_BYTES), fails with [`Error::ShortHeader`].
    pub fn open(format: Format, head: &[u8]) -> Result<Self, Error> {
        let layout = match format {
            Format::Qcow2 => qcow2::open(head)?,
            Format::Vdi => vdi::open(head)?,
            Format::Vhd => vhd::open(head)?,
            Format::Vhdx => vhdx::open(head)?,
            Format::Vmdk => vmdk::open(head)?,
            Format::VmdkDescriptor => return Err(vmdk::refuse_descriptor(head)),
            other => return Err(Error::UnsupportedFormat(other)),
        };
        Ok(Self { layout })
    }

    /// Reads the head of a qcow2 delta, an image that stores only the differences to a base image.
    /// Also returns what the header says about the base, if it names one: KubeVirt's incremental
    /// backups do not name theirs.
    pub fn open_delta(head: &[u8]) -> Result<(Self, Option<BackingFile>), Error> {
        let (layout, base) = qcow2::open_delta(head)?;
        Ok((Self { layout }, base))
    }

    /// Creates an image from a layout whose header has been validated. This is for formats that
    /// this crate does not support itself.
    pub fn from_layout(layout: Box<dyn ImageLayout>) -> Self {
        Self { layout }
    }

    /// Returns the facts read from the head.
    pub fn head_facts(&self) -> HeadFacts {
        self.layout.head_facts().clone()
    }
}

/// The codec of a compressed cluster (or grain).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterCompression {
    /// Raw deflate (RFC 1951): qcow2.
    Deflate,
    /// Deflate in its zlib wrapper with a checksum (RFC 1950): VMDK.
    Zlib,
    /// Zstandard frames (RFC 8878): qcow2.
    Zstd,
}

/// Codec and size of the compressed clusters of one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressedClusters {
    /// The codec of all compressed clusters.
    pub compression: ClusterCompression,
    /// Bytes of each cluster when inflated.
    pub size: u64,
}
