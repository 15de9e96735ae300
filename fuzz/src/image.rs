//! An image of a format with a map: extents on the disk, each byte once, and one disk, by whatever route.

use diskimage::{
    Error, Findings, Format, Host, Image, ImageChecker, ImageMemoryLimit, MAX_HEAD_BYTES, TableConsumer,
};

use crate::{Array, Pieces};

/// Reads the image in one pass, once as it is cut and once in large chunks, and with its map first.
pub fn check(format: Format, pieces: &Pieces) {
    if let Ok(findings) = look_at_tables(format, pieces) {
        assert!(findings.unknown_to_qemu <= findings.error_count);
        assert_eq!(findings.errors.is_empty(), findings.error_count == 0);
    }
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

/// Whether the tables agree with each other, whatever they say.
fn look_at_tables(format: Format, pieces: &Pieces) -> Result<Findings, Error> {
    let image = pieces.rest();
    let head = &image[..image.len().min(MAX_HEAD_BYTES)];
    // More would let a VDI of 177 bytes have a map of 2 GiB, all zeros, which takes a sanitizer six seconds.
    let memory = ImageMemoryLimit(8 << 20);
    let mut checker = ImageChecker::new(Image::open(format, head)?, image.len() as u64, memory);
    loop {
        let tables = checker.next_tables()?;
        if tables.is_empty() {
            return Ok(checker.finish_check());
        }
        for table in tables {
            let at = |place: Host| usize::try_from(place.0).unwrap();
            let range = table.host_range();
            checker.add_table(&table, &image[at(range.start)..at(range.end)])?;
        }
    }
}
