//! Parses the manifest of an OVF package, which holds digests of the package's files (DMTF
//! DSP0243, "Manifest file").

use stream::digest::Checksum;
use stream::error::ArchiveErrorKind;

use super::name::printable_name;

/// Returns the digests that `manifest` lists for the file `wanted`. A line of a manifest looks
/// like `SHA256(disk.vmdk)= 9f86d0…`.
pub fn find_checksums(manifest: &[u8], wanted: &[u8]) -> Result<Vec<Checksum>, ArchiveErrorKind> {
    let mut found = Vec::new();
    for line in manifest.split(|byte| matches!(byte, b'\n' | b'\r')) {
        if let Some((algorithm, name, digest)) = parse_line(line)
            && file_name(name) == file_name(wanted)
        {
            let text = format!("{}:{}", printable_name(algorithm), printable_digest(digest));
            let checksum = text.parse().map_err(|error| {
                ArchiveErrorKind::Refused(format!(
                    "the digest in the manifest of `{}` cannot be read: {error}",
                    printable_name(wanted)
                ))
            });
            found.push(checksum?);
        }
    }
    Ok(found)
}

/// Splits a line into algorithm, name and digest. `None` if the line is not of this form.
fn parse_line(line: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let open = line.iter().position(|byte| *byte == b'(')?;
    let close = line.iter().rposition(|byte| *byte == b')')?;
    let name = line.get(open + 1..close)?;
    let digest = line.get(close + 1..)?.trim_ascii_start().strip_prefix(b"=")?;
    Some((line.get(..open)?, name, digest))
}

/// Escapes a digest for messages. No valid digest is longer than 200 characters, so the rest of a
/// longer text is not shown.
fn printable_digest(digest: &[u8]) -> String {
    printable::escape_prefix(digest, 200)
}

/// Returns the last component of a name. A package in a single file contains no directories, but
/// some writers put `./` before the names.
fn file_name(name: &[u8]) -> &[u8] {
    name.rsplit(|byte| *byte == b'/').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(manifest: &str) -> Result<Vec<String>, ArchiveErrorKind> {
        Ok(find_checksums(manifest.as_bytes(), b"./vm-disk1.vmdk")?
            .iter()
            .map(ToString::to_string)
            .collect())
    }

    #[test]
    fn checksum_lines_of_all_manifest_writers_are_read() {
        let sha1 = "0a".repeat(20);
        let sha256 = "bC".repeat(32);
        let manifest = format!(
            "SHA1(vm.ovf)= {sha1}\r\nSHA1(vm-disk1.vmdk)= {sha1}\r\nSHA256 (vm-disk1.vmdk) = {sha256}\n\nnonsense\n)(\n"
        );
        let expected = vec![format!("sha1:{sha1}"), format!("sha256:{}", sha256.to_lowercase())];
        assert_eq!(found(&manifest), Ok(expected));
        assert_eq!(found(""), Ok(Vec::new()));
    }

    #[test]
    fn a_malformed_digest_is_refused() {
        for line in ["SHA256(vm-disk1.vmdk)= 12", "SHA3(vm-disk1.vmdk)= 12", "SHA1(vm-disk1.vmdk)="]
        {
            assert!(matches!(found(line), Err(ArchiveErrorKind::Refused(_))), "{line}");
        }
        assert_eq!(found("SHA256(other.vmdk)= 12"), Ok(Vec::new()));
    }
}
