//! Lists of checksums, which publishers store beside their images: `SHA256SUMS`, `CHECKSUM`.
//!
//! | form | line | written by |
//! |---|---|---|
//! | text | `<hex>  <name>` | `sha256sum`; Debian, AlmaLinux, openSUSE |
//! | binary | `<hex> *<name>` | `sha256sum --binary`; Ubuntu |
//! | escaped | either, after a backslash; `\\`, `\n`, `\r` in the name | coreutils, for odd names |
//! | BSD | `SHA256 (<name>) = <hex>` | `sha256sum --tag`; Fedora, CentOS, Rocky |

use std::borrow::Cow;

use stream::digest::{Checksum, DigestAlgorithm};

/// Largest list, in bytes. Those of whole distributions have some hundred KiB.
pub(super) const MAX_SUMS_BYTES: u64 = 4 << 20;

/// A hash function of lists: name in a BSD line, number of hexadecimal digits, and the algorithm if
/// the importer can compute it.
type ListedFunction = (&'static str, usize, Option<DigestAlgorithm>);

static LISTED: [ListedFunction; 5] = [
    ("MD5", 32, Some(DigestAlgorithm::Md5)),
    ("SHA1", 40, Some(DigestAlgorithm::Sha1)),
    ("SHA256", 64, Some(DigestAlgorithm::Sha256)),
    ("SHA384", 96, None),
    ("SHA512", 128, Some(DigestAlgorithm::Sha512)),
];

/// The hash functions that may decide, the strongest first. Files with equal MD5 or SHA-1 hashes
/// can be made, and every publisher of images also lists one of these. `--checksum` still accepts
/// the old functions, because a user who types one has chosen it.
const STRONG: [&str; 2] = ["SHA512", "SHA256"];

/// Reasons why a list does not determine the checksum of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChecksumListError {
    /// No line is a checksum.
    #[error("it contains no checksums")]
    NoList,
    /// The list does not have the image under any of these names.
    #[error("it does not list {0}")]
    NotListed(String),
    /// The list has several checksums of one kind for these names.
    #[error("it lists different {1} checksums for {0}")]
    Ambiguous(String, &'static str),
    /// The image has checksums of these kinds only.
    #[error("it lists {0} only with {1}, but sha256 or sha512 is required")]
    Weak(String, String),
}

/// One line of a list.
#[derive(Debug, PartialEq, Eq)]
struct ListedChecksum<'t> {
    function: &'static ListedFunction,
    hex: &'t str,
    name: Cow<'t, str>,
}

/// Returns the checksum that the list `text` has for an image with these names: the name that was
/// asked for, and the one at which redirects ended. Directories in the list are ignored.
pub fn find_checksum(text: &str, names: &[&str]) -> Result<Checksum, ChecksumListError> {
    let mut found: Vec<(&ListedFunction, &str)> = Vec::new();
    let mut is_list = false;
    let shown = || {
        let mut names = names.to_vec();
        names.dedup();
        names.join(" or ")
    };
    for line in text.lines().filter_map(parse_line) {
        is_list = true;
        let name = line.name.rsplit('/').next().unwrap_or(&line.name);
        if !names.contains(&name) {
            continue;
        }
        match found.iter().find(|(function, _)| *function == line.function) {
            Some((_, other)) if !other.eq_ignore_ascii_case(line.hex) => {
                return Err(ChecksumListError::Ambiguous(shown(), line.function.0));
            }
            Some(_) => {}
            None => found.push((line.function, line.hex)),
        }
    }
    for wanted in STRONG {
        let strong = found.iter().find(|((function, ..), _)| *function == wanted);
        if let Some(((_, _, Some(algorithm)), hex)) = strong
            && let Ok(checksum) = format!("{algorithm}:{hex}").parse()
        {
            return Ok(checksum);
        }
    }
    found.sort_by_key(|((_, digits, _), _)| *digits);
    let weak: Vec<String> =
        found.iter().map(|((function, ..), _)| function.to_ascii_lowercase()).collect();
    Err(match (weak.is_empty(), is_list) {
        (true, false) => ChecksumListError::NoList,
        (true, true) => ChecksumListError::NotListed(shown()),
        (false, _) => ChecksumListError::Weak(shown(), weak.join(" and ")),
    })
}

/// Parses a line of a list; `None` for any other line, such as a comment.
fn parse_line(line: &str) -> Option<ListedChecksum<'_>> {
    let (is_escaped, line) = match line.strip_prefix('\\') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (function, hex, name) = parse_gnu(line).or_else(|| parse_bsd(line))?;
    let name = if is_escaped { Cow::Owned(unescape_name(name)?) } else { Cow::Borrowed(name) };
    Some(ListedChecksum { function, hex, name }).filter(|line| !line.name.is_empty())
}

fn parse_gnu(line: &str) -> Option<(&'static ListedFunction, &str, &str)> {
    let (hex, rest) = line.split_once(' ')?;
    let name = rest.strip_prefix([' ', '*'])?;
    let function = LISTED.iter().find(|(_, digits, _)| is_hex(hex, *digits))?;
    Some((function, hex, name))
}

fn parse_bsd(line: &str) -> Option<(&'static ListedFunction, &str, &str)> {
    let (tag, rest) = line.split_once(" (")?;
    let (name, hex) = rest.rsplit_once(") = ")?;
    let function = LISTED.iter().find(|(name, digits, _)| *name == tag && is_hex(hex, *digits))?;
    Some((function, hex, name))
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the name that coreutils escaped; `None` for an unknown escape.
fn unescape_name(name: &str) -> Option<String> {
    let mut text = String::with_capacity(name.len());
    let mut chars = name.chars();
    while let Some(char) = chars.next() {
        text.push(match char {
            '\\' => match chars.next()? {
                '\\' => '\\',
                'n' => '\n',
                'r' => '\r',
                _ => return None,
            },
            other => other,
        });
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hex(digit: char, digits: usize) -> String {
        std::iter::repeat_n(digit, digits).collect()
    }

    #[test]
    fn lists_of_real_publishers_are_read() {
        let [a, b] = ['a', 'B'].map(|digit| hex(digit, 64));
        let long = hex('c', 128);
        for (text, expected) in [
            (format!("{a}  disk.img\n{b}  other.img\n"), format!("sha256:{a}")),
            (format!("{b} *disk.img\n"), format!("sha256:{b}")),
            (format!("{long}  ./images/disk.img\r\n"), format!("sha512:{long}")),
            (
                format!("# Fedora\n# disk.img: 1 bytes\nSHA256 (disk.img) = {a}\n"),
                format!("sha256:{a}"),
            ),
            // The strongest one decides, and the same one twice is not a contradiction.
            (
                format!("{a}  disk.img\n{}  a/disk.img\n{long} *disk.img\n", a.to_uppercase()),
                format!("sha512:{long}"),
            ),
            (format!("{}  disk.img\n{a}  disk.img", hex('0', 32)), format!("sha256:{a}")),
        ] {
            let found = find_checksum(&text, &["disk.img", "disk.img"]).unwrap().to_string();
            assert_eq!(found, expected.to_ascii_lowercase(), "{text}");
        }
        let escaped = format!("\\{a}  a\\\\b\\n\n\\SHA256 (c\\\\d) = {b}\n");
        assert!(find_checksum(&escaped, &["a\\b\n"]).is_ok());
        assert!(find_checksum(&escaped, &["c\\d"]).is_ok());
    }

    #[test]
    fn an_image_without_one_strong_checksum_is_refused() {
        let [a, b] = ['a', 'b'].map(|digit| hex(digit, 64));
        let refused = |text: &str| find_checksum(text, &["d", "e"]).unwrap_err().to_string();
        for text in ["", "<html>\n", &a, &format!("{a} d"), &format!("{}  d", &a[1..])] {
            assert_eq!(refused(text), "it contains no checksums", "{text}");
        }
        for text in [
            format!("{a}  D\n"),
            format!("{a}  d/f\n"),
            format!("{a}   d\n"),
            format!("\\{a}  \\\\d\n"),
            format!("SHA256 (xd) = {a}\n"),
        ] {
            assert_eq!(refused(&text), "it does not list d or e", "{text}");
        }
        for text in [
            format!("{a}  d\n{b}  d\n"),
            // A redirect from one listed image to another.
            format!("{a}  d\n{b}  e\n"),
            format!("{a}  1/d\nSHA256 (2/d) = {b}\n"),
        ] {
            assert_eq!(refused(&text), "it lists different SHA256 checksums for d or e");
        }
        let weak = format!("{}  d\n{}  d\n{}  d\n", hex('1', 32), hex('2', 40), hex('3', 96));
        assert_eq!(
            refused(&weak),
            "it lists d or e only with md5 and sha1 and sha384, but sha256 or sha512 is required"
        );
        assert_eq!(
            find_checksum(&format!("{a}  d"), &["x", "x"]).unwrap_err().to_string(),
            "it does not list x"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_or_refused(text in "(\\PC{0,70}\n){0,4}", name in "\\PC{0,9}") {
            find_checksum(&text, &[&name]).ok();
        }

        /// Lines of coreutils are read back, whatever the name is.
        #[test]
        fn every_name_is_found_again(name in "[^/\0]{1,20}", form in 0..3) {
            let escaped =
                name.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r");
            let mark = if escaped == name { "" } else { "\\" };
            let hex = hex('a', 64);
            let line = match form {
                0 => format!("{mark}{hex}  {escaped}\n"),
                1 => format!("{mark}{hex} *{escaped}\n"),
                _ => format!("{mark}SHA256 ({escaped}) = {hex}\n"),
            };
            prop_assert_eq!(find_checksum(&line, &[&name]).unwrap().to_string(), format!("sha256:{hex}"));
        }
    }
}
