//! Measures the memory that this process uses.

use std::fs;

/// Returns the anonymous memory of this process in bytes: memory that counts towards a limit and
/// cannot be written back to a file. Returns `None` if the kernel does not report it.
pub fn anonymous_bytes() -> Option<u64> {
    // The kernel computes this file page by page. The numbers in `statm` may lag by several
    // hundred pages per CPU (Linux 6.2, `percpu_counter`).
    in_rollup(&fs::read_to_string("/proc/self/smaps_rollup").ok()?)
}

fn in_rollup(text: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix("Anonymous:"))?;
    let kib: u64 = rest.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_rollup_is_ignored() {
        assert_eq!(in_rollup("Rss: 7 kB\nAnonymous:        12 kB\n"), Some(12 << 10));
        for text in ["", "Anonymous:", "Anonymous: x kB", "Anonymous: 18446744073709551615 kB"] {
            assert_eq!(in_rollup(text), None, "{text}");
        }
    }
}
