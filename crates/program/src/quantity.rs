//! Parses Kubernetes quantities into whole bytes.
//!
//! Grammar: `<signed number><suffix>`. The suffix is binary (`Ki` … `Ei`), decimal (`n u m`, none,
//! `k M G T P E`) or an exponent (`e3`, `E-2`); see
//! `k8s.io/apimachinery/pkg/api/resource.Quantity`.

/// Maximum length of a text that is parsed. Real quantities are shorter than 30 characters.
const MAX_LENGTH: usize = 64;

/// The largest size of a file or device. Linux stores offsets as signed 64-bit numbers.
const MAX_BYTES: u64 = i64::MAX.unsigned_abs();

/// Returns the message about a text that does not follow the grammar.
fn syntax_error(text: &str) -> String {
    let shown: String = text.chars().take(MAX_LENGTH).collect();
    format!(
        "{shown:?} is not a Kubernetes quantity: use a number with an optional suffix, such as 500Mi, 10Gi or 1e9"
    )
}

/// Parses a size that a person wrote, in bytes. Besides Kubernetes quantities, common spellings are
/// accepted: 10GB is read as 10G, and 10GiB as 10Gi.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.strip_prefix(number).unwrap_or_default();
    let unit = unit.strip_suffix(['B', 'b']).unwrap_or(unit);
    let unit = match unit {
        "K" => "k",
        // In Kubernetes `m` means a thousandth, and `k` is the only lower-case unit of size. The
        // user probably meant the upper-case unit.
        "ki" | "m" | "mi" | "g" | "gi" | "t" | "ti" | "p" | "pi" => {
            let letter = unit.trim_end_matches('i').to_uppercase();
            let decimal = if letter == "K" { "k" } else { &letter };
            return Err(format!(
                "{text:?} has an unknown unit: write {number}{decimal} or {number}{letter}i"
            ));
        }
        known => known,
    };
    parse_bytes(&format!("{number}{unit}"))
}

/// Parses the quantity `text` and returns it in bytes. Fractions of a byte are rounded up. The
/// error is a message for the user.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    if text.len() > MAX_LENGTH {
        return Err(syntax_error(text));
    }
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let suffix_at =
        unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(suffix_at);
    let scale = UnitScale::parse(suffix).ok_or_else(|| syntax_error(text))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') {
        return Err(syntax_error(text));
    }
    // Trailing zeros of the fraction do not change the value, but could make the computation
    // overflow.
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("0{whole}{fraction}");
    let bytes = digits
        .parse::<u128>()
        .ok()
        .and_then(|mantissa| scale.scale_mantissa(mantissa, fraction.len()))
        .filter(|&bytes| bytes <= MAX_BYTES);
    if negative && bytes != Some(0) {
        return Err(format!("quantity {text:?} is negative: a size must be zero or more"));
    }
    // A file cannot be larger, or there are too many digits for an exact computation.
    bytes.ok_or_else(|| format!("quantity {text:?} is too large: the limit is {MAX_BYTES} bytes"))
}

/// The multiplier that a suffix stands for.
#[derive(Clone, Copy)]
enum UnitScale {
    PowerOf2(u32),
    PowerOf10(i32),
}

impl UnitScale {
    fn parse(suffix: &str) -> Option<Self> {
        const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        if let Some((power, _)) = (1..).zip(BINARY).find(|(_, unit)| *unit == suffix) {
            return Some(Self::PowerOf2(10 * power));
        }
        if let Some((power, _)) = (-3..).zip(DECIMAL).find(|(_, unit)| *unit == suffix) {
            return Some(Self::PowerOf10(3 * power));
        }
        Some(Self::PowerOf10(suffix.strip_prefix(['e', 'E'])?.parse().ok()?))
    }

    /// Returns `ceil(mantissa / 10^fraction_digits * scale)`, or `None` if a step overflows.
    fn scale_mantissa(self, mantissa: u128, fraction_digits: usize) -> Option<u64> {
        if mantissa == 0 {
            return Some(0);
        }
        let fraction_digits = i32::try_from(fraction_digits).ok()?;
        let (scaled, power_of_10) = match self {
            Self::PowerOf2(n) => (mantissa.checked_mul(1 << n)?, -fraction_digits),
            Self::PowerOf10(n) => (mantissa, n.checked_sub(fraction_digits)?),
        };
        let factor = 10_u128.checked_pow(power_of_10.unsigned_abs());
        let value = match (factor, power_of_10 < 0) {
            (Some(factor), true) => scaled.div_ceil(factor),
            // The divisor exceeds every u128 value, so the quotient lies between zero and one and
            // is rounded up.
            (None, true) => 1,
            (factor, false) => scaled.checked_mul(factor?)?,
        };
        u64::try_from(value).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_in_kubernetes_and_rounded_up() {
        for (text, bytes) in [
            ("2276332667", 2_276_332_667),
            ("1k", 1_000),
            ("1M", 1_000_000),
            ("1G", 1_000_000_000),
            ("1T", 1_000_000_000_000),
            ("1P", 1_000_000_000_000_000),
            ("1E", 1_000_000_000_000_000_000),
            ("1Ki", 1 << 10),
            ("500Mi", 500 << 20),
            ("1Gi", 1 << 30),
            ("1Ti", 1 << 40),
            ("1Pi", 1 << 50),
            ("7Ei", 7 << 60),
            ("1e3", 1_000),
            ("1E3", 1_000),
            ("1e+3", 1_000),
            ("+5Gi", 5 << 30),
            ("1.5Gi", 3 << 29),
            (".5Mi", 1 << 19),
            ("5.", 5),
            ("1.10000000000000000000000000000000000000000000000000000", 2),
            ("9223372036854775807", MAX_BYTES),
            ("1288490188800m", 1_288_490_189),
            ("1000m", 1),
            ("1001m", 2),
            ("1u", 1),
            ("1n", 1),
            ("1e-2000000000", 1),
            ("0.3Ki", 308),
            ("0e2000000000", 0),
            ("-0", 0),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let longest = "1".repeat(MAX_LENGTH + 1);
        for text in ["", " 1Gi", "1Gi ", ".", "-", "1.2.3", "1gi", "1e", "1e1.5", "0x10", &longest]
        {
            let error = parse_bytes(text).unwrap_err();
            assert!(error.contains("is not a Kubernetes quantity"), "{text}: {error}");
        }
        for text in ["-1", "-1m", "-9999999999Ei"] {
            assert!(parse_bytes(text).unwrap_err().contains("is negative"), "{text}");
        }
        for text in
            ["9223372036854775808", "8Ei", "10E", "1e2000000000", "99999999999999999999999Ei"]
        {
            assert!(parse_bytes(text).unwrap_err().contains("is too large"), "{text}");
        }
    }

    #[test]
    fn sizes_are_accepted_in_the_usual_units() {
        for (text, bytes) in [
            ("10Gi", 10 << 30),
            ("10GiB", 10 << 30),
            ("10GB", 10_000_000_000),
            ("10G", 10_000_000_000),
            ("1.5TB", 1_500_000_000_000),
            ("3KB", 3000),
            ("512B", 512),
            ("1e9", 1_000_000_000),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for (text, words) in [
            ("10g", "write 10G or 10Gi"),
            ("10gb", "write 10G or 10Gi"),
            ("10m", "write 10M or 10Mi"),
            ("4ki", "write 4k or 4Ki"),
            ("ten", "is not a Kubernetes quantity"),
            ("GB", "is not a Kubernetes quantity"),
            ("", "is not a Kubernetes quantity"),
        ] {
            let said = parse_size(text).unwrap_err();
            assert!(said.contains(words), "{text}: {said}");
        }
    }
}
