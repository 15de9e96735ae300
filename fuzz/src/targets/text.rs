//! Parses checksums and sizes as users write them in variables and flags.

use program::quantity;
use stream::digest::Checksum;

pub fn run(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    if let Ok(checksum) = text.parse::<Checksum>() {
        assert_eq!(checksum.to_string().parse(), Ok(checksum));
    }
    if let Ok(bytes) = quantity::parse_bytes(text) {
        assert!(i64::try_from(bytes).is_ok(), "{bytes} bytes are more than a file can have");
        assert_eq!(quantity::parse_bytes(&bytes.to_string()), Ok(bytes));
    }
}
