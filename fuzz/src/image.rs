//! An image of a format with a map: extents on the disk, each byte once, and one disk, by whatever route.

use diskimage::Format;

use crate::{Array, Pieces};

/// Reads the image in one pass, once as it is cut and once in large chunks, and with its map first.
pub fn check(format: Format, pieces: &Pieces) {
    let Some(passed) = Array::one_pass(format, pieces.clone()) else {
        return;
    };
    if let Some(whole) = Array::one_pass(format, pieces.in_large()) {
        assert_eq!(passed.is_ok(), whole.is_ok(), "cutting decides over success");
        if let (Ok(passed), Ok(whole)) = (&passed, &whole) {
            assert!(passed == whole, "cutting changes the disk");
        }
    }
    if let (Ok(passed), Some(Ok(mapped))) = (&passed, Array::map_first(format, pieces.clone())) {
        assert!(*passed == mapped, "the routes lead to different disks");
    }
}
