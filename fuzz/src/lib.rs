//! What the fuzz targets share.

mod array;
mod pieces;

pub use array::Array;
pub use pieces::Pieces;
