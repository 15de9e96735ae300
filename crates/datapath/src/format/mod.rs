//! From the image's bytes to extents on the target: one file for each layout of an image.

mod head;
mod image;
mod mapped;
pub mod park;
pub mod raw;
mod tables;

pub(crate) use self::head::{ImageHead, open_mapped};
pub(crate) use self::image::PreparedImage;
pub(crate) use self::mapped::{MappedImage, pass_mapped};
pub(crate) use self::tables::{fetch_map, fetch_tables, ranged_length};
