//! Formats sizes and durations for people.

use std::fmt;
use std::time::Duration;

/// A number of bytes, formatted with two decimals in the largest unit that fits: `1.50 MiB`.
#[derive(Debug, Clone, Copy)]
pub struct BinaryBytes(pub u64);

impl fmt::Display for BinaryBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let unit = (1..).zip(UNITS).take_while(|&(power, _)| self.0 >> (10 * power) > 0).last();
        let Some((power, name)) = unit else {
            return write!(f, "{} B", self.0);
        };
        let half = 1 << (10 * power - 1);
        let hundredths = (u128::from(self.0) * 100 + half) >> (10 * power);
        write!(f, "{}.{:02} {name}", hundredths / 100, hundredths % 100)
    }
}

/// A duration, formatted in its two largest units: `45 s`, `12 min 5 s`, `3 h 20 min`.
pub(super) struct RoughTime(pub(super) Duration);

impl fmt::Display for RoughTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
            (0, 0, seconds) => write!(f, "{seconds} s"),
            (0, minutes, seconds) => write!(f, "{minutes} min {seconds} s"),
            (hours, minutes, _) => write!(f, "{hours} h {minutes} min"),
        }
    }
}

/// Truncates `text` to at most `columns` columns. A truncated text ends with `…`.
pub(super) fn cut_text(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let Some(room) = columns.checked_sub(1) else {
        return String::new();
    };
    text.chars().take(room).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_rounded_to_their_largest_units() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1541, "1.50 KiB"),
            (1542, "1.51 KiB"),
            (3 << 20, "3.00 MiB"),
            (u64::MAX, "16.00 EiB"),
        ] {
            assert_eq!(BinaryBytes(bytes).to_string(), text);
        }
        for (seconds, text) in
            [(0, "0 s"), (59, "59 s"), (725, "12 min 5 s"), (12_059, "3 h 20 min")]
        {
            assert_eq!(RoughTime(Duration::from_secs(seconds)).to_string(), text);
        }
        for (columns, text) in [(0, ""), (1, "…"), (4, "abc…"), (5, "abcdé"), (9, "abcdé")] {
            assert_eq!(cut_text("abcdé", columns), text);
        }
    }
}
