//! Recognises files that are not disks. Without this check a web page, a package or a program
//! would be stored as a raw disk, since a raw disk has no magic number of its own.
//!
//! The rules must accept every raw disk. A disk begins with code, a partition table, zeros or the
//! label of a filesystem. None of these is a page of text, and each magic number here is compared
//! in all the bits that its format fixes.

use stream::error::FormatError;

/// Number of text bytes at the beginning that rule out a disk. A shorter file counts as text if
/// all of it is text.
const TEXT_BYTES: usize = 4096;

/// Maximum number of characters of a text that an error quotes.
const QUOTED_CHARS: usize = 60;

/// The magic number of a tar, and its offset (POSIX.1-2017, pax, "ustar Interchange Format"). In
/// GNU tar a space follows it.
const USTAR: &[u8] = b"ustar";
const USTAR_AT: usize = 257;

/// Examines `head`, which is not the head of a known image format. Text and files that cannot be a
/// disk are refused. A file that is only probably none, or that somebody may want on a disk
/// unchanged, is accepted with a warning, which is returned and logged. `bytes` and `content_type`
/// describe the source as far as they are known.
pub(crate) fn refuse_foreign(
    head: &[u8],
    bytes: Option<u64>,
    content_type: Option<&str>,
) -> Result<Option<&'static str>, FormatError> {
    if is_text(head) {
        let beginning = printable::escape_line(&String::from_utf8_lossy(head), QUOTED_CHARS);
        let content_type = content_type.map(|name| printable::escape_line(name, QUOTED_CHARS));
        let facts = content_type.into_iter().chain(bytes.map(|bytes| format!("{bytes} bytes")));
        let facts = match facts.collect::<Vec<_>>().join(", ") {
            facts if facts.is_empty() => facts,
            facts => format!(" ({facts})"),
        };
        return Err(FormatError::NotDisk(format!(
            "text, not a disk: it begins with \"{beginning}\"{facts}: check the address, and whether it requires a login"
        )));
    }
    if let Some((kind, remedy)) = foreign_kind(head) {
        return Err(FormatError::NotDisk(format!("{kind}, not a disk: {remedy}")));
    }
    let doubt = doubtful_kind(head);
    if let Some(warning) = doubt {
        tracing::warn!("{warning}");
    }
    Ok(doubt)
}

/// The first [`TEXT_BYTES`] of `head`, or all of a shorter `head`.
fn text_page(head: &[u8]) -> &[u8] {
    head.get(..TEXT_BYTES).unwrap_or(head)
}

/// True if the page is text: UTF-8 in which white space is the only kind of control character.
fn is_text(head: &[u8]) -> bool {
    let page = text_page(head);
    let text = match std::str::from_utf8(page) {
        Ok(text) => text,
        // The page may end in the middle of a character.
        Err(error) if error.error_len().is_none() && page.len() == TEXT_BYTES => {
            let whole = page.get(..error.valid_up_to()).unwrap_or_default();
            std::str::from_utf8(whole).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.is_empty() && text.chars().all(is_text_char)
}

fn is_text_char(c: char) -> bool {
    !c.is_control() || c.is_ascii_whitespace()
}

/// True if the page may be text in another encoding than UTF-8: UTF-16 with a byte order mark, or
/// at least 256 bytes of an encoding that contains ASCII. One character in 256 may be a control
/// character, but none of the first ones: a boot sector begins with a jump and a number.
fn may_be_text(head: &[u8]) -> bool {
    let page = text_page(head);
    let odd = match page {
        [0xFF, 0xFE, _, _, ..] => odd_utf16(page, u16::from_le_bytes),
        [0xFE, 0xFF, _, _, ..] => odd_utf16(page, u16::from_be_bytes),
        _ if page.len() < 256 || !page.iter().take(16).all(is_ascii_text) => return false,
        _ => page.iter().filter(|byte| !is_ascii_text(byte)).count(),
    };
    odd <= page.len() / 256
}

/// True unless the byte is a control character without its highest bit.
fn is_ascii_text(byte: &u8) -> bool {
    is_text_char(char::from(byte & 0x7F))
}

/// Number of characters in UTF-16 that are invalid or control characters.
fn odd_utf16(page: &[u8], decode: fn([u8; 2]) -> u16) -> usize {
    let (units, _) = page.as_chunks();
    let characters = char::decode_utf16(units.iter().map(|unit| decode(*unit)));
    characters.filter(|c| !c.as_ref().is_ok_and(|c| is_text_char(*c))).count()
}

/// The remedy for a file that was probably fetched by mistake.
const CHECK_ADDRESS: &str = "check the address";

/// Files that cannot be a disk: their fixed first bytes, at least eight; their kind; the remedy.
#[rustfmt::skip]
const FOREIGN: &[(&[u8], &str, &str)] = &[
    (b"VMA\0\0\0\0\x01", "a backup of Proxmox VE (VMA)", "take the disks out with `vma extract`"),
    // Version 1.0, headers of 28 and 12 bytes (AOSP, libsparse/sparse_format.h).
    (b"\x3A\xFF\x26\xED\x01\0\0\0\x1C\0\x0C\0", "an Android sparse image", "convert it with `simg2img`"),
    (b"partclone-image", "a partclone image", "restore it with `partclone.restore`"),
    (b"\0ntfsclone-image", "an ntfsclone image", "restore it with `ntfsclone --restore-image`"),
    (b"MSWIM\0\0\0", "a Windows installation image (WIM)", "apply it to a disk with DISM or `wimapply`"),
    (b"EVF\x09\x0D\x0A\xFF\0", "an EnCase image (E01)", "convert it with `ewfexport -f raw`"),
    (b"EVF2\x0D\x0A\x81\0", "an EnCase image (Ex01)", "convert it with `ewfexport -f raw`"),
    (b"encrcdsa", "an encrypted disk image of macOS (dmg)", "convert it with `hdiutil convert -format UDTO`"),
    (b"MComprHD", "a disk image of MAME (CHD)", "convert it with `chdman extracthd`"),
    (b"age-encryption.org/v1\n", "encrypted with age", "decrypt it with `age --decrypt`"),
    (b"Salted__", "encrypted with OpenSSL", "decrypt it with `openssl enc -d`"),
    // Header of 28 bytes, version 1.
    (b"xar!\0\x1C\0\x01", "a package of macOS (xar)", CHECK_ADDRESS),
    // The signature is followed by four reserved zeros ([MS-CAB] 2.1).
    (b"MSCF\0\0\0\0", "a cabinet (CAB)", CHECK_ADDRESS),
    (b"!<arch>\n", "a package or library (ar)", CHECK_ADDRESS),
];

/// Recognises files that cannot be a disk by the fixed bits of their first bytes. Returns the kind
/// and the remedy.
fn foreign_kind(head: &[u8]) -> Option<(&'static str, &'static str)> {
    if let Some((_, kind, remedy)) = FOREIGN.iter().find(|(magic, ..)| head.starts_with(magic)) {
        return Some((kind, remedy));
    }
    let kind = match head {
        // ELF: class 1 or 2, byte order 1 or 2, version 1 (System V ABI, "ELF Identification").
        [0x7F, b'E', b'L', b'F', 1 | 2, 1 | 2, 1, ..] => "a program (ELF)",
        [b'%', b'P', b'D', b'F', b'-', b'1' | b'2', b'.', ..] => "a PDF document",
        // The lead of an RPM: version 3 or 4, binary or source package.
        [0xED, 0xAB, 0xEE, 0xDB, 3 | 4, _, 0, 0 | 1, ..] => "an RPM package",
        // RAR 1.5 to 4 and 5 ("RAR 5.0 archive format", "General archive structure").
        [b'R', b'a', b'r', b'!', 0x1A, 7, 0, ..] | [b'R', b'a', b'r', b'!', 0x1A, 7, 1, 0, ..] => {
            "a RAR archive"
        }
        // cpio in the format "newc": 13 numbers of 8 hexadecimal digits follow the magic number.
        [b'0', b'7', b'0', b'7', b'0', b'1' | b'2', ..]
            if head.get(6..110).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) =>
        {
            "a cpio archive"
        }
        // An .lzma stream as xz writes it: default properties, a dictionary of at least 4 KiB,
        // unknown size.
        [0x5D, 0, low, ..] if head.get(5..13) == Some(&[0xFF; 8][..]) && low & 0x0F == 0 => {
            "an .lzma stream"
        }
        // compress: 9 to 16 bits, block mode (with a clear code), reserved bits zero.
        [0x1F, 0x9D, flags, ..] if flags & 0xE0 == 0x80 && (9..=16).contains(&(flags & 0x1F)) => {
            "a .Z stream (compress)"
        }
        _ => return None,
    };
    Some((kind, CHECK_ADDRESS))
}

/// The warning about a file that is probably not a disk, or that not every guest can use.
fn doubtful_kind(head: &[u8]) -> Option<&'static str> {
    Some(match head {
        _ if head.get(USTAR_AT..).is_some_and(|rest| rest.starts_with(USTAR)) => {
            "this is a tar archive, stored unchanged as a disk: `cdi-importer import --ova` takes the disk out of an OVA, and an archive \
             belongs into a directory"
        }
        [b'L', b'U', b'K', b'S', 0xBA, 0xBE, ..] => {
            "this disk is encrypted by LUKS: only a guest that has the key can read it"
        }
        [0x89, b'L', b'Z', b'O', 0, 0x0D, 0x0A, 0x1A, 0x0A, ..] => {
            "this looks like an lzop stream, stored unchanged as a disk: decompress it with `lzop -d`"
        }
        [0x02, 0x21, 0x4C, 0x18, ..] => {
            "this looks like an old lz4 stream, stored unchanged as a disk: decompress it with `lz4 -d`"
        }
        [b'L', b'R', b'Z', b'I', 0, ..] => {
            "this looks like an lrzip stream, stored unchanged as a disk: decompress it with `lrzip -d`"
        }
        // A packet with the session key, for a public key (version, 8 bytes of key ID, algorithm)
        // or a passphrase (version, cipher, kind of S2K); RFC 9580 §4.2, §5.1, §5.3.
        [0x84 | 0xC1, _, 3, _, _, _, _, _, _, _, _, 1 | 16 | 18 | 25, ..]
        | [0x85, _, _, 3, _, _, _, _, _, _, _, _, 1 | 16 | 18 | 25, ..]
        | [0x8C | 0xC3, _, 4, 1..=13, 0 | 1 | 3, ..] => {
            "this looks like an OpenPGP message, stored unchanged as a disk: decrypt it with `gpg --decrypt`"
        }
        _ if may_be_text(head) => {
            "this looks like text, stored unchanged as a disk: check the address, and whether it requires a login"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(head: &[u8]) -> Option<String> {
        refuse_foreign(head, None, None).err().map(|error| error.to_string())
    }

    #[test]
    fn text_is_quoted_with_its_type_and_length() {
        let page =
            b"<!DOCTYPE html>\r\n<html>\n<head><title>Sign in to \"the\" portal of our company</title>";
        let error = refuse_foreign(page, Some(21_093), Some("text/html")).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "this is text, not a disk: it begins with \"<!DOCTYPE html> <html> <head><title>Sign in to \"the\" portal …\" \
                 (text/html, 21093 bytes)"
            ),
            "{error}"
        );
    }

    #[test]
    fn text_of_any_script_is_text() {
        for text in [
            "{\"error\":\"denied\"}",
            "version https://git-lfs.github.com/spec/v1\n",
            "ä€🦀\t\x0c\r\n",
        ] {
            assert!(refused(text.as_bytes()).is_some(), "{text}");
            let long = text.repeat(TEXT_BYTES);
            for skipped in 0..4 {
                // This must hold wherever the page ends and whatever bytes follow the text.
                let page = [" ".repeat(skipped).as_bytes(), long.as_bytes(), b"\0\xFF"].concat();
                assert!(refused(&page).is_some(), "{text}");
            }
        }
    }

    #[test]
    fn a_disk_is_not_text() {
        let mut boot_sector = b"\xEB\x63\x90 GRUB ".to_vec();
        boot_sector.resize(512, b' ');
        let mut zeros_behind_text = b"a label".to_vec();
        zeros_behind_text.resize(TEXT_BYTES, 0);
        let mut late = vec![b'x'; TEXT_BYTES];
        late[TEXT_BYTES - 1] = 0;
        for (what, head) in [
            ("nothing", Vec::new()),
            ("zeros", vec![0; 512]),
            ("a boot sector", boot_sector),
            ("a label", zeros_behind_text),
            ("text with a zero at the end of the page", late),
            ("an escape sequence", b"\x1B[0m".to_vec()),
            ("half a character at the end of all", b"abc\xC3".to_vec()),
        ] {
            assert_eq!(refused(&head), None, "{what}");
        }
    }

    #[test]
    fn foreign_files_are_refused_by_name() {
        for (name, head) in [
            ("ELF", &b"\x7FELF\x02\x01\x01\0"[..]),
            ("PDF", b"%PDF-1.7\n%\xE2\xE3"),
            ("RPM", b"\xED\xAB\xEE\xDB\x03\0\0\0"),
            ("RAR", b"Rar!\x1A\x07\x01\0"),
            ("CAB", b"MSCF\0\0\0\0"),
            ("ar)", b"!<arch>\ndebian-binary   \0"),
            (".lzma", b"\x5D\0\0\x80\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\0"),
            (".Z", b"\x1F\x9D\x90ab"),
        ] {
            let sentence = refused(head).unwrap_or_else(|| panic!("{name} is accepted"));
            assert!(sentence.contains(name), "{sentence}");
            for end in 0..3 {
                refuse_foreign(&head[..end], None, None).ok();
            }
        }
        for (what, head) in [
            ("ELF of no class", &b"\x7FELF\0\0\0\0"[..]),
            ("compress with reserved bits", b"\x1F\x9D\xF0"),
            ("properties of .lzma and a size", b"\x5D\0\0\x80\0\0\0\0\0\0\0\0\x01"),
            ("LUKS", b"LUKS\xBA\xBE\0\x02"),
        ] {
            assert_eq!(refused(head), None, "{what}");
        }
    }
}
