//! An image whose head has been read.

use crate::layout::Layout;
use crate::{Clusters, Format};

/// Bytes of the head that [`Image::open`] wants to see first; where it needs more, it says how many.
pub const HEAD_BYTES: usize = 64 << 10;

/// The longest head that is waited for: a VHDX has its size behind its log, wherever that ends.
pub const MAX_HEAD_BYTES: usize = 16 << 20;

/// An image of a format with a map, whose header was checked.
pub struct Image {
    pub(crate) layout: Box<dyn Layout>,
}

/// The facts that the head of an image tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Its format.
    pub format: Format,
    /// Bytes of the virtual disk.
    pub virtual_size: u64,
    /// Its compressed clusters, if it may have such.
    pub clusters: Option<Clusters>,
    /// Bytes that are allocated together.
    pub cluster_size: Option<u64>,
    /// The units in which bytes wait, in one pass, whose place is not known yet.
    pub parking_unit: Option<u64>,
    /// Its particulars, for people.
    pub features: Vec<String>,
    /// Snapshots inside it, whose data is ignored.
    pub snapshots: u32,
    /// An earlier writer marked it as corrupt.
    pub is_marked_corrupt: bool,
}

impl Image {
    /// The facts that the head tells.
    pub fn facts(&self) -> Facts {
        Facts::of(&*self.layout)
    }
}

impl Facts {
    pub(crate) fn of(layout: &dyn Layout) -> Self {
        Self {
            format: layout.format(),
            virtual_size: layout.virtual_size(),
            clusters: layout.clusters(),
            cluster_size: layout.cluster_size(),
            parking_unit: layout.parking_unit(),
            features: layout.features(),
            snapshots: layout.snapshots(),
            is_marked_corrupt: layout.is_marked_corrupt(),
        }
    }
}
