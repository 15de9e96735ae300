//! An image whose head has been read.

use crate::layout::ImageLayout;
use crate::{CompressedClusters, Format};

/// Bytes of the head that [`Image::open`] wants to see first; where it needs more, it says how many.
pub const HEAD_BYTES: usize = 64 << 10;

/// The longest head that is waited for: a VHDX has its size behind its log, wherever that ends.
pub const MAX_HEAD_BYTES: usize = 16 << 20;

/// An image of a format with a map, whose header was checked.
pub struct Image {
    pub(crate) layout: Box<dyn ImageLayout>,
}

/// The facts that the head of an image tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadFacts {
    /// Its format.
    pub format: Format,
    /// Bytes of the virtual disk.
    pub virtual_size: u64,
    /// The storage of its compressed clusters, if it may have such.
    pub clusters: Option<CompressedClusters>,
    /// Bytes that are allocated together.
    pub cluster_size: Option<u64>,
    /// One pass: the units in which bytes of the image wait whose place is not known yet: a power of two from 512 bytes to
    /// 2 MiB. `None`: nothing ever waits, for everything is known of each byte when it comes.
    pub parking_unit: Option<u64>,
    /// Its particulars, for people: short noun phrases.
    pub features: Vec<String>,
    /// Snapshots inside it, whose data is ignored.
    pub snapshots: u32,
    /// An earlier writer marked it as corrupt; it is read nevertheless.
    pub is_marked_corrupt: bool,
}

impl HeadFacts {
    /// Those of an image of `format` that has nothing special.
    pub(crate) fn new(format: Format, virtual_size: u64) -> Self {
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
    /// The facts that the head tells.
    pub fn head_facts(&self) -> HeadFacts {
        self.layout.head_facts().clone()
    }
}
