//! Text of others, as it may be shown on a terminal, in a line of a log or in an answer.
//!
//! Names in images and archives, answers of servers and registries, file names of uploads: all may hold characters that move the cursor,
//! begin a line, hide, or turn the order of what follows them around ("Trojan Source", CVE-2021-42574). They are shown by their
//! number, as in a Rust literal: `\n`, `\u{202e}`. Text of any script stays as it is.

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt::Write;

/// True for a character that shows as itself, where it stands. All others are of the general categories Cc, Cf, Zl, Zp, Co and Cn
/// (controls, formats, line and paragraph separators, private and unassigned ones).
pub fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        // Spaces of any width (Zs). The standard library shows them by their number.
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => true,
        // The standard library has the categories, and tells them by what it escapes. Behind another character, since it also
        // escapes a combining mark at the beginning.
        _ => {
            let mut text = [b'a', 0, 0, 0, 0];
            let (_, rest) = text.split_at_mut(1);
            let length = 1 + c.encode_utf8(rest).len();
            let text = text.get(..length).and_then(|text| std::str::from_utf8(text).ok());
            text.is_some_and(|text| text.escape_debug().eq(text.chars()))
        }
    }
}

/// `text` with everything that is not [printable](is_printable) by its number. Shown twice it is the same as shown once.
pub fn escape_text(text: &str) -> Cow<'_, str> {
    escape_with(text, |c, shown| shown.extend(c.escape_default()))
}

/// The first `most` characters of bytes that should be UTF-8, shown as by [`escape_text`]; `…` stands for the rest.
pub fn escape_prefix(bytes: &[u8], most: usize) -> String {
    // A character has four bytes at most; one of the rest tells that there is more.
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

/// Words of a server on one line of `most` characters, shown as by [`escape_text`]: any white space in them is one space.
pub fn escape_line(words: &str, most: usize) -> String {
    let words = words.split_whitespace().flat_map(|word| [" ", word]);
    // One of the rest tells that there is more.
    let line: String = words.flat_map(str::chars).skip(1).take(most.saturating_add(1)).collect();
    escape_prefix(line.as_bytes(), most)
}

/// JSON, in which everything that is not printable is an escape of JSON (RFC 8259, section 7): it means what it meant.
pub fn escape_json(text: &str) -> Cow<'_, str> {
    escape_with(text, |c, shown| {
        // What is not printable and outside of a string is white space.
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

    /// All characters of the general categories.
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
    fn what_deceives_is_among_them() {
        for c in "\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\
                  \u{61c}\u{2028}\u{2029}\u{85}\u{feff}\u{e0001}\u{e0041}\u{ad}\u{1b}\u{9b}\u{7f}\n\r\t\0"
            .chars()
        {
            assert!(!is_printable(c), "{c:?}");
        }
    }

    #[test]
    fn letters_marks_digits_and_symbols_of_all_scripts_are_shown() {
        for c in category(r"\p{L}\p{M}\p{N}\p{P}\p{S}\p{Zs}") {
            assert!(is_printable(c), "{c:?}");
        }
        for name in
            ["Übergröße.qcow2", "نسخة-احتياطية", "गृहपृष्ठ", "日本語 ディスク", "café e\u{301}", "образ 🖴"]
        {
            assert_eq!(escape_text(name), name);
        }
    }

    #[test]
    fn text_shows_its_numbers_once() {
        let shown = escape_text("a\u{1b}[2Jb\n\u{202e}ü").into_owned();
        assert_eq!(shown, r"a\u{1b}[2Jb\n\u{202e}ü");
        assert_eq!(escape_text(&shown), shown);
    }

    #[test]
    fn the_start_is_short_whatever_it_holds() {
        assert_eq!(escape_prefix("añ\u{2028}".as_bytes(), 3), r"añ\u{2028}");
        assert_eq!(escape_prefix("añ\u{2028}x".as_bytes(), 3), r"añ\u{2028}…");
        assert_eq!(escape_prefix(b"\xff\xfe\n", 9), "\u{fffd}\u{fffd}\\n");
        assert_eq!(escape_prefix(&[b'x'; 100_000], 5), "xxxxx…");
        assert_eq!(escape_prefix(b"", 0), "");
    }

    #[test]
    fn a_line_is_one() {
        assert_eq!(
            escape_line(" It\r\n does\u{2028}not\u{85}\tgo\u{1b}[2J. ", 99),
            r"It does not go\u{1b}[2J."
        );
        assert_eq!(escape_line("a b", 2), "a …");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let text = "{\n  \"name\": \"a\u{202e}b\u{e0041}\"\n}\n";
        assert_eq!(escape_json(text), "{\n  \"name\": \"a\\u202eb\\udb40\\udc41\"\n}\n");
    }
}
