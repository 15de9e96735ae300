//! Writes results to standard output.

use std::io::{self, Write};

/// Writes to standard output. A closed pipe (`| head`) is not an error.
pub fn print_stdout(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
