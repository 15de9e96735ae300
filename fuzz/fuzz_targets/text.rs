//! What people write in variables and flags: checksums and sizes.

#![no_main]

use datapath::digest::Checksum;
use libfuzzer_sys::fuzz_target;

// The file itself: its crate would bring a whole TLS stack into the build with sanitizers.
#[allow(dead_code)]
#[path = "../../daemon/src/quantity.rs"]
mod quantity;

fuzz_target!(|text: &str| {
    if let Ok(checksum) = text.parse::<Checksum>() {
        assert_eq!(checksum.to_string().parse(), Ok(checksum));
    }
    if let Ok(bytes) = quantity::parse_bytes(text) {
        assert!(i64::try_from(bytes).is_ok(), "no file can have {bytes} bytes");
        assert_eq!(quantity::parse_bytes(&bytes.to_string()), Ok(bytes));
    }
});
