//! Detects the format of any image head: the result is a format or two candidates. A parsed qcow2
//! header satisfies its limits, and errors are printable messages.

use diskimage::qcow2::Qcow2Header;
use diskimage::{DETECT_BYTES, Format};

pub fn run(data: &[u8]) {
    let format = Format::detect(data);
    assert_eq!(
        format,
        Format::detect(&data[..data.len().min(DETECT_BYTES)]),
        "bytes beyond DETECT_BYTES change the result"
    );
    if let Ok(format) = format {
        assert_eq!(
            Format::resolve_wanted(data, Some(format)),
            Ok(format),
            "the detected format does not resolve to itself"
        );
    }
    match Qcow2Header::parse(data) {
        Ok(header) => {
            assert!((512..=2 << 20).contains(&header.cluster_size()));
            assert!(header.virtual_size.is_multiple_of(512));
            assert!(header.l1_entries * 8 <= 32 << 20);
            let mapped = u128::from(header.l1_entries) * u128::from(header.bytes_per_l2());
            assert!(mapped >= u128::from(header.virtual_size));
            assert!(!header.feature_names().is_empty());
        }
        Err(error) => {
            let sentence = error.to_string();
            assert!(sentence.chars().all(printable::is_printable), "{sentence:?}");
            assert!(sentence.len() < 20_000, "an error message of {} bytes", sentence.len());
        }
    }
}
