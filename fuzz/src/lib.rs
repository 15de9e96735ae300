//! What the fuzz targets share.

mod array;
pub mod image;
mod pieces;
pub mod seal;
pub mod spread;

pub use array::Array;
pub use pieces::Pieces;
