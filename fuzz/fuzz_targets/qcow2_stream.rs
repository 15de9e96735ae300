//! Any image in one pass: extents on the disk, each byte once, and the same disk however the image is cut.

#![no_main]

use diskimage::Format;
use fuzz::{Array, Pieces};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(pieces) = Pieces::new(data) else { return };
    let image = pieces.rest();
    let large = Pieces::new(&[&[255; 4], &image[..]].concat()).expect("four sizes");
    let (Some(in_pieces), Some(in_large)) = (
        Array::one_pass(Format::Qcow2, pieces.clone()),
        Array::one_pass(Format::Qcow2, large),
    ) else {
        return;
    };
    assert_eq!(
        in_pieces.is_ok(),
        in_large.is_ok(),
        "cutting decides over success"
    );
    if let (Ok(in_pieces), Ok(in_large)) = (in_pieces, in_large) {
        assert!(in_pieces == in_large, "cutting changes the disk");
    }
});
