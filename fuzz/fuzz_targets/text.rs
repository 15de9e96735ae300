//! Parses checksums and sizes as users write them in variables and flags.

#![no_main]

use datapath::digest::Checksum;
use libfuzzer_sys::fuzz_target;
use program::quantity;

fuzz_target!(|text: &str| {
    if let Ok(checksum) = text.parse::<Checksum>() {
        assert_eq!(checksum.to_string().parse(), Ok(checksum));
    }
    if let Ok(bytes) = quantity::parse_bytes(text) {
        assert!(i64::try_from(bytes).is_ok(), "{bytes} bytes are more than a file can have");
        assert_eq!(quantity::parse_bytes(&bytes.to_string()), Ok(bytes));
    }
});
