//! Extra request headers, from environment variables and from the files of a Secret.

use std::path::Path;
use std::{fs, io};

use http::{HeaderName, HeaderValue};
use stream::error::SourceError;

use crate::error::invalid_error;

/// Longest header line that is read from a file, in bytes. A Secret contains at most 1 MiB;
/// servers accept far less.
const LINE_LIMIT_BYTES: u64 = 64 * 1024;

/// One extra request header. A secret value is hidden from `Debug` and never logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtraHeader {
    /// The name.
    pub name: HeaderName,
    /// The value.
    pub value: HeaderValue,
}

impl ExtraHeader {
    /// Returns the value if the header has this `name`, in lower case.
    pub fn value_of(&self, name: &str) -> Option<String> {
        (self.name == name).then(|| String::from_utf8_lossy(self.value.as_bytes()).into_owned())
    }
}

/// Parses a header line `Name: value`. It is split at the first colon, and the value is trimmed. A
/// line without a colon is dropped, as in CDI. Errors name the header, never its value.
pub fn parse_header(line: &str, secret: bool) -> Result<Option<ExtraHeader>, SourceError> {
    let Some((name, value)) = line.split_once(':') else {
        return Ok(None);
    };
    let refused = |what: &str| invalid_error(format!("extra header {name:?} is invalid: {what}"));
    let header_name: HeaderName =
        name.parse().map_err(|_| refused("the name contains a forbidden character"))?;
    let mut value: HeaderValue =
        value.trim().parse().map_err(|_| refused("the value contains a forbidden character"))?;
    value.set_sensitive(secret);
    Ok(Some(ExtraHeader { name: header_name, value }))
}

/// Reads the headers below `dir`, one from each file, recursively and ordered by name. Names that
/// begin with a dot are internals of mounted Secrets and are skipped. A missing directory is not
/// an error.
pub fn read_secret_headers(dir: &Path) -> Result<Vec<ExtraHeader>, SourceError> {
    let mut lines = Vec::new();
    if let Err(error) = collect_lines(dir, &mut lines)
        && (error.kind() != io::ErrorKind::NotFound || dir.exists())
    {
        return Err(invalid_error(format!(
            "Error getting extra headers for HTTP client: {}: {}",
            dir.display(),
            stream::error::errno_text(&error)
        )));
    }
    lines.iter().filter_map(|line| parse_header(line, true).transpose()).collect()
}

fn collect_lines(dir: &Path, lines: &mut Vec<String>) -> io::Result<()> {
    let mut entries = fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
    // Sort by name, as Go, and therefore CDI, does when it lists a directory.
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        // The keys of a Secret are symbolic links to files. Links to directories are not followed,
        // so loops cannot occur.
        if entry.file_type()?.is_dir() {
            collect_lines(&entry.path(), lines)?;
        } else if fs::metadata(entry.path())?.is_file() {
            lines.push(read_line(&entry.path())?);
        }
    }
    Ok(())
}

fn read_line(path: &Path) -> io::Result<String> {
    let length = fs::metadata(path)?.len();
    if length > LINE_LIMIT_BYTES {
        let message =
            format!("{} holds {length} bytes, the limit is {LINE_LIMIT_BYTES}", path.display());
        return Err(io::Error::other(message));
    }
    // Editors and `echo` end a file with a newline, which would make the header invalid.
    Ok(fs::read_to_string(path)?.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn pair(header: &ExtraHeader) -> (&str, &str) {
        (header.name.as_str(), header.value.to_str().unwrap())
    }

    #[test]
    fn a_line_is_split_at_the_first_colon_and_trimmed() {
        for (line, expected) in [
            ("X-Token: a:b", Some(("x-token", "a:b"))),
            ("X-Token:bare", Some(("x-token", "bare"))),
            ("X-Token:  spaces  ", Some(("x-token", "spaces"))),
            ("X-Empty:", Some(("x-empty", ""))),
            ("no colon", None),
            ("", None),
        ] {
            let header = parse_header(line, false).unwrap();
            assert_eq!(header.as_ref().map(pair), expected, "{line:?}");
        }
    }

    #[test]
    fn an_invalid_header_is_named_without_its_value() {
        for line in ["X-Token: sec\nret", "X Token: secret"] {
            let message = parse_header(line, true).unwrap_err().to_string();
            assert!(message.contains("Token\" is invalid"), "{message}");
            assert!(!message.contains("ret"), "{message}");
        }
        let header = parse_header("X-Token: secret", true).unwrap();
        assert!(!format!("{header:?}").contains("secret"));
    }

    #[test]
    fn a_mounted_secret_is_read_once_and_trimmed() {
        let dir = tempfile::tempdir().unwrap();
        let mount = dir.path().join("mount");
        fs::create_dir_all(mount.join("..2024_01_01")).unwrap();
        fs::write(mount.join("..2024_01_01/token"), "X-Token: one\n").unwrap();
        symlink("..2024_01_01", mount.join("..data")).unwrap();
        symlink("..data/token", mount.join("token")).unwrap();
        fs::write(mount.join("other"), "X-Other: two\r\n").unwrap();
        let headers = read_secret_headers(dir.path()).unwrap();
        assert_eq!(
            headers.iter().map(pair).collect::<Vec<_>>(),
            [("x-other", "two"), ("x-token", "one")]
        );
        assert!(headers.iter().all(|header| header.value.is_sensitive()));
    }

    #[test]
    fn a_missing_directory_is_accepted_and_a_broken_or_large_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_secret_headers(&dir.path().join("missing")).unwrap(), []);
        let (path, fits) = (dir.path().join("long"), usize::try_from(LINE_LIMIT_BYTES).unwrap());
        let line = format!("X-Long: {}", "a".repeat(fits - 8));
        fs::write(&path, &line).unwrap();
        assert_eq!(read_secret_headers(dir.path()).unwrap().len(), 1);
        fs::write(&path, line + "a").unwrap();
        let message = read_secret_headers(dir.path()).unwrap_err().to_string();
        assert!(message.contains("the limit is 65536"), "{message}");
        fs::remove_file(&path).unwrap();
        symlink("nowhere", dir.path().join("dangling")).unwrap();
        let message = read_secret_headers(dir.path()).unwrap_err().to_string();
        assert!(message.starts_with("Error getting extra headers for HTTP client: "), "{message}");
    }
}
