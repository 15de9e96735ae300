//! Opens an image of any readable format by its head.

use crate::qcow2::BackingFile;
use crate::{Error, Format, Image, qcow2, vdi, vhd, vhdx, vmdk};

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
}
