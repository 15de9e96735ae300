//! Escapes untrusted text so that it is safe to show on a terminal, in a log line or in a
//! response.
//!
//! Names in images and archives, responses of servers and registries, and file names of uploads
//! may contain characters that move the cursor, begin a new line, are invisible, or reverse the
//! order of the following text ("Trojan Source", CVE-2021-42574). Such characters are shown as
//! Rust escapes: `\n`, `\u{202e}`. Printable text in any script stays unchanged.
//!
//! ```
//! let name = "disk\u{202e}gpj.exe\n";
//! assert_eq!(printable::escape_text(name), r"disk\u{202e}gpj.exe\n");
//! assert_eq!(printable::escape_text("größe.qcow2"), "größe.qcow2");
//! ```

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt::Write;

/// True for a character that is displayed as itself, at its own position. All other characters
/// belong to the general categories Cc, Cf, Zl, Zp, Co and Cn (controls, formats, line and
/// paragraph separators, private use and unassigned).
pub fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        // Spaces of any width (Zs) are printable, although `escape_debug` of the standard library
        // would escape them.
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => {
            true
        }
        // The standard library knows the categories, but reveals them only through `escape_debug`.
        // The character is tested after an `a`, because `escape_debug` also escapes a combining
        // mark at the beginning of a text.
        _ => {
            let mut text = [b'a', 0, 0, 0, 0];
            let (_, rest) = text.split_at_mut(1);
            let length = 1 + c.encode_utf8(rest).len();
            let text = text.get(..length).and_then(|text| std::str::from_utf8(text).ok());
            text.is_some_and(|text| text.escape_debug().eq(text.chars()))
        }
    }
}

/// Replaces each character of `text` that is not [printable](is_printable) by its escape. Escaping
/// the result again does not change it.
pub fn escape_text(text: &str) -> Cow<'_, str> {
    escape_with(text, |c, shown| shown.extend(c.escape_default()))
}

/// Returns the first `most` characters of `bytes`, which should be UTF-8, escaped as by
/// [`escape_text`]. An appended `…` stands for the rest.
pub fn escape_prefix(bytes: &[u8], most: usize) -> String {
    // A character has at most four bytes. One extra character is taken to detect truncation.
    let enough = bytes.get(..most.saturating_add(1).saturating_mul(4)).unwrap_or(bytes);
    let whole = String::from_utf8_lossy(enough);
    match whole.char_indices().nth(most) {
        None => escape_text(&whole).into_owned(),
        Some((end, _)) => {
            let (start, _) = whole.split_at(end);
            let mut shown = escape_text(start).into_owned();
            shown.push('…');
            shown
        }
    }
}

/// Returns text from a server as one line of at most `most` characters, escaped as by
/// [`escape_text`]. Each run of white space becomes one space.
pub fn escape_line(words: &str, most: usize) -> String {
    let words = words.split_whitespace().flat_map(|word| [" ", word]);
    // Take one extra character to detect truncation.
    let line: String = words.flat_map(str::chars).skip(1).take(most.saturating_add(1)).collect();
    escape_prefix(line.as_bytes(), most)
}

/// Replaces each character of a JSON document that is not printable by a JSON escape (RFC 8259,
/// section 7). The value of the document stays the same.
pub fn escape_json(text: &str) -> Cow<'_, str> {
    escape_with(text, |c, shown| {
        // An unprintable character outside a string can only be JSON white space, which has no
        // escape. Strings never contain these three characters unescaped.
        if matches!(c, '\n' | '\r' | '\t') {
            shown.push(c);
            return;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            write!(shown, "\\u{unit:04x}").ok();
        }
    })
}

fn escape_with(text: &str, mut escape: impl FnMut(char, &mut String)) -> Cow<'_, str> {
    if text.chars().all(is_printable) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_printable(c) {
            shown.push(c);
        } else {
            escape(c, &mut shown);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use regex_syntax::hir::{Class, HirKind};

    use super::*;

    /// All characters in the general categories `names`.
    fn category(names: &str) -> Vec<char> {
        let pattern = regex_syntax::parse(&format!("[{names}]")).unwrap();
        let HirKind::Class(Class::Unicode(class)) = pattern.kind() else { panic!("{names}") };
        class.iter().flat_map(|range| range.start()..=range.end()).collect()
    }

    #[test]
    fn no_control_format_separator_or_private_character_is_shown() {
        let characters = category(r"\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}");
        assert!(characters.len() > 137_000, "{}", characters.len());
        for c in characters {
            assert!(!is_printable(c), "{c:?}");
            let shown = escape_text(&c.to_string()).into_owned();
            assert!(shown.starts_with('\\') && shown.is_ascii(), "{shown}");
        }
    }

    #[test]
    fn letters_marks_digits_and_symbols_of_all_scripts_are_shown() {
        for c in category(r"\p{L}\p{M}\p{N}\p{P}\p{S}\p{Zs}") {
            assert!(is_printable(c), "{c:?}");
        }
        for name in [
            "Übergröße.qcow2",
            "نسخة-احتياطية",
            "गृहपृष्ठ",
            "日本語 ディスク",
            "café e\u{301}",
            "образ 🖴",
        ] {
            assert_eq!(escape_text(name), name);
        }
    }

    #[test]
    fn escaping_twice_changes_nothing() {
        let shown = escape_text("a\u{1b}[2Jb\n\u{202e}ü").into_owned();
        assert_eq!(shown, r"a\u{1b}[2Jb\n\u{202e}ü");
        assert_eq!(escape_text(&shown), shown);
    }

    #[test]
    fn a_prefix_is_cut_to_its_length_and_escaped() {
        assert_eq!(escape_prefix("añ\u{2028}".as_bytes(), 3), r"añ\u{2028}");
        assert_eq!(escape_prefix("añ\u{2028}x".as_bytes(), 3), r"añ\u{2028}…");
        assert_eq!(escape_prefix(b"\xff\xfe\n", 9), "\u{fffd}\u{fffd}\\n");
        assert_eq!(escape_prefix(&[b'x'; 100_000], 5), "xxxxx…");
        assert_eq!(escape_prefix(b"", 0), "");
    }

    #[test]
    fn a_text_of_several_lines_becomes_one_line() {
        assert_eq!(
            escape_line(" It\r\n does\u{2028}not\u{85}\tgo\u{1b}[2J. ", 99),
            r"It does not go\u{1b}[2J."
        );
        assert_eq!(escape_line("a b", 2), "a …");
    }

    #[test]
    fn escaped_json_keeps_its_meaning() {
        let text = "{\n  \"name\": \"a\u{202e}b\u{e0041}\"\n}\n";
        assert_eq!(escape_json(text), "{\n  \"name\": \"a\\u202eb\\udb40\\udc41\"\n}\n");
    }
}
