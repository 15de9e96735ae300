//! The memory that this process takes.

use std::fs;

/// Bytes of memory of this process that belong to no file: what counts towards a limit and cannot
/// be written back. `None` where the kernel does not tell.
pub fn anonymous_bytes() -> Option<u64> {
    // Counted page by page. The numbers of `statm` lag behind by some hundred pages for each CPU
    // (Linux 6.2, `percpu_counter`).
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
    fn memory_that_is_taken_is_told() {
        const BYTES: u64 = 64 << 20;
        let before = anonymous_bytes().unwrap();
        let taken = vec![1_u8; usize::try_from(BYTES).unwrap()];
        let during = anonymous_bytes().unwrap();
        assert!(during >= before + BYTES / 2, "{before} {during}");
        drop(taken);
    }

    #[test]
    fn nonsense_tells_nothing() {
        assert_eq!(in_rollup("Rss: 7 kB\nAnonymous:        12 kB\n"), Some(12 << 10));
        for text in ["", "Anonymous:", "Anonymous: x kB", "Anonymous: 18446744073709551615 kB"] {
            assert_eq!(in_rollup(text), None, "{text}");
        }
    }
}
