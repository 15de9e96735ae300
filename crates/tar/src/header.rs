//! Parses the header block of an entry, in the formats v7, ustar (POSIX.1-1988) and old GNU.

use stream::error::ArchiveErrorKind;

use super::name::printable_name;
use super::number;
use super::sparse::StoredRanges;

/// The size of a block. Headers and data of a tar are stored in whole blocks (POSIX.1-2017, pax,
/// "ustar Interchange Format").
pub(super) const BLOCK_BYTES: usize = 512;

/// One block of an archive.
pub(super) type Block = [u8; BLOCK_BYTES];

/// Size of an entry of an old GNU sparse map: an offset and a length, in bytes.
pub(super) const SPARSE_ENTRY_BYTES: usize = 24;

/// Returns the name of the first entry if `head` begins with a header whose checksum matches, as a
/// tar does. A block of zeros, with which an empty tar begins, is not a header.
pub fn first_name(head: &[u8]) -> Option<Vec<u8>> {
    let header = head.first_chunk().and_then(|block| TarHeader::parse(block).ok())?;
    Some(header.name())
}

/// A header whose checksum was verified.
pub(super) struct TarHeader<'b>(&'b Block);

impl<'b> TarHeader<'b> {
    /// Verifies the checksum of `block`.
    pub(super) fn parse(block: &'b Block) -> Result<Self, ArchiveErrorKind> {
        let stored = number::parse_field(&block[148..156]).unwrap_or(-1);
        // The checksum is calculated as if its own field held spaces. Some old writers added up
        // signed characters, so both sums are accepted.
        let sum = |value: fn(u8) -> i64| {
            let all: i64 = block.iter().map(|byte| value(*byte)).sum();
            let field: i64 = block[148..156].iter().map(|byte| value(*byte)).sum();
            all - field + 8 * i64::from(b' ')
        };
        let calculated = sum(i64::from);
        let matches = stored == calculated || stored == sum(|byte| i64::from(byte.cast_signed()));
        // The signed characters of a disk can also add up to the -1 of a field without a number.
        if stored > 0 && matches {
            Ok(Self(block))
        } else {
            Err(ArchiveErrorKind::Damaged(format!(
                "the checksum of a header is {stored}, its bytes add up to {calculated}"
            )))
        }
    }

    pub(super) fn type_flag(&self) -> u8 {
        self.0[156]
    }

    /// True for the format that GNU tar used before it supported pax. Where ustar stores the
    /// prefix, that format stores other fields.
    pub(super) fn is_old_gnu(&self) -> bool {
        &self.0[257..265] == b"ustar  \0"
    }

    /// Returns the name, preceded by the prefix if the header is ustar and contains one.
    pub(super) fn name(&self) -> Vec<u8> {
        let name = until_nul(&self.0[..100]);
        let is_ustar = &self.0[257..263] == b"ustar\0";
        // The program star stores a shorter prefix, followed by times.
        let is_star = &self.0[508..512] == b"tar\0";
        let prefix = match (is_ustar, is_star) {
            (false, _) => &[],
            (true, true) => until_nul(&self.0[345..476]),
            (true, false) => until_nul(&self.0[345..500]),
        };
        if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
    }

    pub(super) fn link_name(&self) -> Vec<u8> {
        until_nul(&self.0[157..257]).to_vec()
    }

    /// Returns the permissions with setuid, setgid and the sticky bit.
    pub(super) fn mode(&self) -> Result<u32, ArchiveErrorKind> {
        let mode = self.parse_number(100..108, "mode")?;
        Ok(u32::try_from(mode & 0o7777).unwrap_or(0))
    }

    pub(super) fn mtime(&self) -> Result<i64, ArchiveErrorKind> {
        self.parse_number(136..148, "modification time")
    }

    /// Returns the size of the data after the header, in bytes.
    pub(super) fn size(&self) -> Result<u64, ArchiveErrorKind> {
        self.parse_unsigned(124..136, "size")
    }

    /// Returns the size of an old GNU sparse file, holes included, in bytes.
    pub(super) fn real_size(&self) -> Result<u64, ArchiveErrorKind> {
        self.parse_unsigned(483..495, "real size")
    }

    /// Reads the first regions of an old GNU sparse file into `regions`. Returns true if blocks
    /// with more regions follow.
    pub(super) fn sparse_regions(
        &self,
        regions: &mut StoredRanges,
    ) -> Result<bool, ArchiveErrorKind> {
        read_regions(&self.0[386..482], regions)?;
        Ok(self.0[482] != 0)
    }

    fn parse_unsigned(
        &self,
        range: std::ops::Range<usize>,
        field: &'static str,
    ) -> Result<u64, ArchiveErrorKind> {
        let value = self.parse_number(range, field)?;
        u64::try_from(value).map_err(|_| number_error(field, &value.to_string()))
    }

    fn parse_number(
        &self,
        range: std::ops::Range<usize>,
        field: &'static str,
    ) -> Result<i64, ArchiveErrorKind> {
        let bytes = &self.0[range];
        number::parse_field(bytes).ok_or_else(|| number_error(field, &printable_name(bytes)))
    }
}

/// The error for a `value` that is not a valid `field`.
pub(super) fn number_error(field: &str, value: &str) -> ArchiveErrorKind {
    ArchiveErrorKind::Damaged(format!("`{value}` is not a valid {field}"))
}

/// Reads the regions of a block that continues an old GNU sparse map. Returns true if another such
/// block follows.
pub(super) fn more_regions(
    block: &Block,
    regions: &mut StoredRanges,
) -> Result<bool, ArchiveErrorKind> {
    read_regions(&block[..504], regions)?;
    Ok(block[504] != 0)
}

fn read_regions(bytes: &[u8], regions: &mut StoredRanges) -> Result<(), ArchiveErrorKind> {
    for entry in bytes.chunks_exact(SPARSE_ENTRY_BYTES) {
        let (offset, length) = entry.split_at(SPARSE_ENTRY_BYTES / 2);
        // An entry with an empty length is unused, and so are all entries after it.
        if length.first() == Some(&0) {
            break;
        }
        let parse = |bytes| number::parse_field(bytes).and_then(|value| u64::try_from(value).ok());
        let region = parse(offset).zip(parse(length));
        let (offset, length) =
            region.ok_or_else(|| number_error("sparse region", &printable_name(entry)))?;
        regions.push(offset, length)?;
    }
    Ok(())
}

/// Returns the text of a field: the bytes before the first NUL, or all of them.
fn until_nul(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    &field[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(mut block: Block, sum: impl Fn(&Block) -> i64) -> Block {
        block[148..156].fill(b' ');
        let sum = format!("{:06o}\0 ", sum(&block));
        block[148..156].copy_from_slice(sum.as_bytes());
        block
    }

    fn unsigned(block: &Block) -> i64 {
        block.iter().map(|byte| i64::from(*byte)).sum()
    }

    #[test]
    fn only_the_signed_and_the_unsigned_header_checksum_are_accepted() {
        let mut block = [0; BLOCK_BYTES];
        block[..2].copy_from_slice(b"\xff\xfe");
        assert!(TarHeader::parse(&sealed(block, unsigned)).is_ok());
        let signed = |block: &Block| block.iter().map(|byte| i64::from(byte.cast_signed())).sum();
        let mut block = sealed(block, signed);
        assert!(TarHeader::parse(&block).is_ok());
        block[100] ^= 1;
        assert!(matches!(TarHeader::parse(&block), Err(ArchiveErrorKind::Damaged(_))));
    }

    #[test]
    fn a_header_without_a_positive_checksum_is_refused() {
        // The signed sums, with spaces for the checksum, are -1 and 0.
        for (bytes, field) in [(&b"\x80\x80\xff"[..], b"no sum \0"), (b"\x80\x80", b"0000000\0")] {
            let mut block = [0; BLOCK_BYTES];
            block[..bytes.len()].copy_from_slice(bytes);
            block[148..156].copy_from_slice(field);
            assert!(TarHeader::parse(&block).is_err(), "{}", field.escape_ascii());
            assert_eq!(first_name(&block), None, "{}", field.escape_ascii());
        }
    }

    #[test]
    fn only_ustar_headers_have_a_name_prefix() {
        let named = |magic: &[u8], trailer: &[u8]| {
            let mut block = [0; BLOCK_BYTES];
            block[..4].copy_from_slice(b"file");
            block[257..257 + magic.len()].copy_from_slice(magic);
            block[345..500].fill(b'p');
            block[508..508 + trailer.len()].copy_from_slice(trailer);
            TarHeader::parse(&sealed(block, unsigned)).unwrap().name().len()
        };
        assert_eq!(named(b"", b""), 4);
        assert_eq!(named(b"ustar  \0", b""), 4);
        assert_eq!(named(b"ustar\x0000", b""), 155 + 1 + 4);
        assert_eq!(named(b"ustar\x0000", b"tar\0"), 131 + 1 + 4);
    }
}
