//! The log of nbdkit, kept to explain failures. Lines about passwords are left out.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};

use parking_lot::Mutex;
use program::report::VddkInfo;

/// Maximum number of lines that are kept.
const MAX_LINES: usize = 1000;

/// Maximum number of bytes of a line that are kept.
const MAX_LINE_BYTES: u64 = 4096;

/// Longest version and host, in characters. Both go into the termination message, which is limited
/// to 4096 bytes, and a host name has at most 253.
const MAX_INFO_CHARS: usize = 253;

/// The last lines of the log, and what they tell about the library.
#[derive(Default)]
pub(super) struct ProgramLog {
    last: Mutex<VecDeque<String>>,
    info: Mutex<VddkInfo>,
}

impl ProgramLog {
    /// Reads everything from `pipe` until its end.
    pub(super) fn follow_pipe(&self, pipe: impl Read) {
        let mut pipe = BufReader::new(pipe);
        let (mut line, mut is_rest) = (Vec::new(), false);
        while (&mut pipe).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            // The rest of a long line is dropped: it may hold a password without the word
            // "password".
            if !is_rest {
                self.add_line(String::from_utf8_lossy(&line).trim_end());
            }
            is_rest = line.last() != Some(&b'\n');
            line.clear();
        }
    }

    fn add_line(&self, line: &str) {
        // This covers both the argument and the plugin's messages about it.
        if line.to_ascii_lowercase().contains("password") {
            return;
        }
        if let Some(version) = parse_version(line) {
            self.info.lock().version = printable::escape_line(version, MAX_INFO_CHARS);
        }
        if let Some(host) = parse_host(line) {
            self.info.lock().host = printable::escape_line(host, MAX_INFO_CHARS);
        }
        let mut last = self.last.lock();
        if last.len() == MAX_LINES {
            last.pop_front();
        }
        last.push_back(printable::escape_text(line).into_owned());
    }

    /// Notes the host, if no program tells it.
    pub(super) fn note_host(&self, host: &str) {
        self.info.lock().host = printable::escape_line(host, MAX_INFO_CHARS);
    }

    /// Returns the library's information so far.
    pub(super) fn library_info(&self) -> VddkInfo {
        self.info.lock().clone()
    }

    /// Returns the last three errors as one text.
    pub(super) fn last_errors(&self) -> String {
        let last = self.last.lock();
        let errors = last.iter().filter_map(|line| line.split_once("error: "));
        let errors: Vec<&str> = errors.map(|(_, error)| error).collect();
        errors[errors.len().saturating_sub(3)..].join("; ")
    }

    /// Writes all lines to the importer's own log.
    pub(super) fn log_lines(&self) {
        for line in &*self.last.lock() {
            tracing::info!("Log line from nbdkit: {line}");
        }
    }
}

/// Extracts the version from a line like `… VMware VixDiskLib (7.0.3) Release build-18705163`.
fn parse_version(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("VMware VixDiskLib (")?;
    let (version, build) = rest.split_once(')')?;
    build.contains("build-").then_some(version)
}

/// Extracts the host from a line like
/// `… DISKLIB-LINK  : Opened 'vpxa-nfcssl://[ds] vm/disk.vmdk@esx1.example.com:902' (0x1e): …`.
fn parse_host(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("DISKLIB-LINK  : Opened '")?;
    let (opened, _) = rest.split_once("' (0x")?;
    let (_, address) = opened.rsplit_once('@')?;
    Some(address.rsplit_once(':').map_or(address, |(host, _)| host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_and_host_are_read_from_the_log_but_no_passwords() {
        let log = ProgramLog::default();
        let text = "nbdkit: debug: VMware VixDiskLib (7.0.3) Release build-18705163\n\
                    nbdkit: vddk[1]: debug: config key=password, value=secret\n\
                    nbdkit: debug: DISKLIB-LINK  : Opened 'vpxa-nfcssl://[ds] vm/d.vmdk@esx1.example.com:902' (0x1e): custom\n\
                    nbdkit: vddk[1]: error: VixDiskLib_Open: something\n";
        log.follow_pipe(text.as_bytes());
        let expected = VddkInfo { version: "7.0.3".into(), host: "esx1.example.com".into() };
        assert_eq!(log.library_info(), expected);
        assert_eq!(log.last.lock().len(), 3);
        assert_eq!(log.last_errors(), "VixDiskLib_Open: something");
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let log = ProgramLog::default();
        let text: String = (0..5000).map(|n| format!("{n}\n")).collect();
        log.follow_pipe(text.as_bytes());
        log.follow_pipe(vec![b'x'; 100_000].as_slice());
        let lines = log.last.lock();
        assert_eq!(lines.len(), MAX_LINES);
        assert!(lines.iter().all(|line| line.len() <= 4096));
    }
}
