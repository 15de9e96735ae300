//! Text of others, as it may be repeated in logs and errors.

/// The first `max_chars` of `text` on one line, without characters that draw on terminals or turn the text around them.
pub fn one_line(text: &str, max_chars: usize) -> String {
    let printable = |char: char| if is_drawing(char) { ' ' } else { char };
    text.chars().take(max_chars).map(printable).collect()
}

/// Controls, line and paragraph separators, and what Unicode calls `Bidi_Control`.
fn is_drawing(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{2028}' | '\u{2029}' | '\u{61c}' | '\u{200e}' | '\u{200f}'
        )
        || matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_on_one_line_in_order_and_short() {
        for (text, expected) in [
            ("denied", "denied"),
            ("a\u{1b}[2Jb\r\nc", "a [2Jb  c"),
            ("a\u{202e}b\u{2066}c\u{2028}d\u{61c}e", "a b c d e"),
            ("ünïcödé 日本 עברית", "ünïcödé 日本 עברית"),
        ] {
            assert_eq!(one_line(text, 100), expected);
        }
        assert_eq!(one_line(&"ü".repeat(100_000), 300).chars().count(), 300);
    }
}
