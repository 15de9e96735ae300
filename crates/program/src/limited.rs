//! Reads small files of unknown size.

use std::io::{self, Read};

/// Reads `input` to its end. Fails if it has more than `most` bytes.
pub fn read_limited(input: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_input_is_refused_and_a_full_one_is_not() {
        assert_eq!(read_limited(&b"1234"[..], 4).unwrap(), b"1234");
        let error = read_limited(io::repeat(1), 4).unwrap_err();
        assert_eq!(error.to_string(), "it has more than 4 bytes");
    }
}
