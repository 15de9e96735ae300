//! The kinds of tables in an image.

/// The grain directory.
pub(super) const DIRECTORY: u8 = 0;
/// A grain table. `LoadedTable::note` is the first guest byte that it maps.
pub(super) const GRAIN_TABLE: u8 = 1;
/// The end of an image that is read at any offset: the footer, between its marker and the
/// end-of-stream marker.
pub(super) const FOOTER: u8 = 2;
/// A marker.
pub(super) const MARKER: u8 = 3;
/// The type of a marker that does not precede a grain. `LoadedTable::note` is the marker's value.
pub(super) const MARKER_TYPE: u8 = 4;
/// A grain table after its marker.
pub(super) const MARKED_TABLE: u8 = 5;
/// The grain directory after its marker.
pub(super) const MARKED_DIRECTORY: u8 = 6;
/// The footer after its marker.
pub(super) const MARKED_FOOTER: u8 = 7;
