//! Checks an image of a format with a map: extents lie on the disk, each byte is written once, and
//! every way of reading gives the same disk.

use diskimage::{
    Error, Findings, Format, Host, Image, ImageChecker, ImageMemoryLimit, MAX_HEAD_BYTES,
    TableConsumer,
};

use crate::{Array, Pieces};

/// Reads the image in one pass, in the given chunks and in large ones, and once more with its map
/// first.
pub fn check(format: Format, pieces: &Pieces) {
    if let Ok(findings) = look_at_tables(format, pieces) {
        assert!(findings.unknown_to_qemu <= findings.error_count);
        assert_eq!(findings.errors.is_empty(), findings.error_count == 0);
    }
    let Some(passed) = Array::one_pass(format, pieces.clone()) else {
        return;
    };
    if let Some(whole) = Array::one_pass(format, pieces.in_large()) {
        assert_eq!(
            passed.is_ok(),
            whole.is_ok(),
            "chunk sizes decide whether the image is accepted"
        );
        if let (Ok(passed), Ok(whole)) = (&passed, &whole) {
            assert!(passed == whole, "chunk sizes change the disk");
        }
    }
    if let (Ok(passed), Some(Ok(mapped))) = (&passed, Array::map_first(format, pieces.clone())) {
        assert!(*passed == mapped, "reading in one pass and map first gives different disks");
    }
}

/// Checks whether the image's tables agree with each other.
fn look_at_tables(format: Format, pieces: &Pieces) -> Result<Findings, Error> {
    let image = pieces.rest();
    let head = &image[..image.len().min(MAX_HEAD_BYTES)];
    // With a higher limit, a VDI of 177 bytes could have a map of 2 GiB of zeros, which takes six
    // seconds with a sanitizer.
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
