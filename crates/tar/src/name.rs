//! Validates the names of entries.

use stream::error::ArchiveErrorKind;

/// Longest path in bytes, including its NUL (`PATH_MAX` of Linux).
pub const PATH_MAX_BYTES: usize = 4096;
/// Longest component of a path in bytes (`NAME_MAX` of Linux).
const NAME_MAX_BYTES: usize = 255;
/// Deepest nesting of directories. Each level keeps a descriptor open while entries are created in
/// it, and a process may have 1024 descriptors.
const MAX_DEPTH: u64 = 128;
/// Number of characters of a name that messages show.
const SHOWN_CHARS: usize = 200;

/// Splits a name into its components, omitting `.` and empty ones. Names that could lead out of
/// the target are errors, as are names that are too long or too deep.
pub fn path_components(name: &[u8]) -> Result<Vec<&[u8]>, ArchiveErrorKind> {
    use ArchiveErrorKind::Name;
    if name.is_empty() {
        return Err(Name("is empty"));
    }
    if name.contains(&0) {
        return Err(Name("contains a NUL byte"));
    }
    // GNU tar strips the slash and continues. Here it is an error, because the user would get
    // something other than what was sent.
    if name.starts_with(b"/") {
        return Err(Name("is absolute: names must be relative to the target directory"));
    }
    if name.len() >= PATH_MAX_BYTES {
        return Err(Name("is longer than 4095 bytes, the limit for a path"));
    }
    let mut found = Vec::new();
    for component in name.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => {
                return Err(Name("contains `..`, which would lead out of the target directory"));
            }
            long if long.len() > NAME_MAX_BYTES => {
                return Err(Name("has a component longer than 255 bytes"));
            }
            component => found.push(component),
        }
    }
    ArchiveErrorKind::check_limit("a depth of directories", found.len() as u64, MAX_DEPTH)?;
    Ok(found)
}

/// Escapes and shortens a name for messages.
pub fn printable_name(name: &[u8]) -> String {
    printable::escape_prefix(name, SHOWN_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_reduced_to_their_components() {
        for (name, expected) in [
            (&b"a"[..], &[&b"a"[..]][..]),
            (b"./a//b/./c/", &[b"a", b"b", b"c"]),
            (b"./", &[]),
            (b".", &[]),
            (b"a/...", &[b"a", b"..."]),
            (b"-rf", &[b"-rf"]),
            (b"a\n\xff", &[b"a\n\xff"]),
        ] {
            assert_eq!(path_components(name).unwrap(), expected);
        }
    }

    #[test]
    fn names_that_leave_the_folder_are_refused() {
        for name in
            [&b"/etc/passwd"[..], b"//", b"..", b"../a", b"a/..", b"a/../b", b"./..", b"", b"a\0b"]
        {
            assert!(path_components(name).is_err(), "{}", name.escape_ascii());
        }
    }

    #[test]
    fn long_names_and_deep_paths_are_refused() {
        let long = |bytes| vec![b'x'; bytes];
        assert!(path_components(&long(255)).is_ok());
        assert!(path_components(&long(256)).is_err());
        let slashes = |bytes| vec![b'/'; bytes];
        assert!(path_components(&[b"a".to_vec(), slashes(4094)].concat()).is_ok());
        assert!(path_components(&[b"a".to_vec(), slashes(4095)].concat()).is_err());
        assert!(path_components(&b"d/".repeat(128)).is_ok());
        assert!(path_components(&b"d/".repeat(129)).is_err());
    }

    #[test]
    fn printed_names_are_escaped_and_shortened() {
        assert_eq!(printable_name("größe\n\u{1b}[2J".as_bytes()), "größe\\n\\u{1b}[2J");
        assert_eq!(printable_name(b"\xff"), "\u{fffd}");
        assert_eq!(printable_name(&[b'x'; 300]).chars().count(), 201);
    }
}
