//! Turns the bytes of an image into extents on the target. The crate `inspect` decides the format;
//! `raw` and `mapped` copy the data.

mod chain;
mod image;
mod mapped;
mod park;
pub(crate) mod raw;

pub(crate) use self::chain::{ChainedFile, ImageChain};
pub(crate) use self::image::PreparedImage;
pub(crate) use self::mapped::{MappedImage, pass_mapped};
