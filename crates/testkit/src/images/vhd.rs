//! Builds VHD images byte by byte that `qemu-img` does not write ("Virtual Hard Disk Image Format
//! Specification" 1.0).

/// Size of a sector, and of the footer.
const SECTOR: usize = 512;
/// Size of the dynamic disk header ("Dynamic Disk Header Format").
const DYNAMIC_HEADER: usize = 1024;
/// Offset of the checksum in a footer ("Hard Disk Footer Format").
pub const FOOTER_CHECKSUM_AT: usize = 64;
/// Offset of the checksum in a dynamic disk header.
pub const HEADER_CHECKSUM_AT: usize = 36;

/// The fields of a footer.
#[derive(Debug, Clone)]
pub struct Footer {
    /// "Creator Application": Hyper-V writes `win `.
    pub creator: [u8; 4],
    /// "Current Size" in bytes.
    pub current_size: u64,
    /// "Disk Geometry": cylinders, heads, sectors.
    pub geometry: (u16, u8, u8),
    /// "Disk Type": 2 fixed, 3 dynamic, 4 differencing.
    pub disk_type: u32,
    /// "Data Offset": the offset of the dynamic disk header, or all ones.
    pub data_offset: u64,
}

impl Footer {
    /// A footer as Hyper-V and Azure write it for a fixed disk of `size` bytes.
    pub fn fixed(size: u64) -> Self {
        Self {
            creator: *b"win ",
            current_size: size,
            geometry: geometry(size),
            disk_type: 2,
            data_offset: u64::MAX,
        }
    }

    /// The footer's 512 bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, b"conectix");
        // "Features": only the reserved bit, which is always set. "File Format Version": 1.0.
        put(8, &[0, 0, 0, 2, 0, 1, 0, 0]);
        put(16, &self.data_offset.to_be_bytes());
        // "Time Stamp": seconds since 2000.
        put(24, &0x2f00_0000_u32.to_be_bytes());
        put(28, &self.creator);
        put(32, &[0, 10, 0, 0]);
        put(36, b"Wi2k");
        put(40, &self.current_size.to_be_bytes());
        put(48, &self.current_size.to_be_bytes());
        put(56, &self.geometry.0.to_be_bytes());
        put(58, &[self.geometry.1, self.geometry.2]);
        put(60, &self.disk_type.to_be_bytes());
        // "Unique Id".
        put(68, &[0x5a; 16]);
        seal(&mut bytes, FOOTER_CHECKSUM_AT);
        bytes
    }
}

/// Returns a fixed image of `disk` with `footer`.
pub fn fixed(disk: &[u8], footer: &Footer) -> Vec<u8> {
    [disk, &footer.bytes()].concat()
}

/// Writes the checksum of a structure at offset `at`: the ones' complement of the sum of all its
/// other bytes.
pub fn seal(structure: &mut [u8], at: usize) {
    structure[at..at + 4].fill(0);
    let sum = structure.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    structure[at..at + 4].copy_from_slice(&(!sum).to_be_bytes());
}

/// Computes the disk geometry ("CHS Calculation" in the appendix of the specification).
pub fn geometry(size: u64) -> (u16, u8, u8) {
    let sectors = (size / SECTOR as u64).min(65_535 * 16 * 255);
    let (heads, per_track) = if sectors >= 65_535 * 16 * 63 {
        (16, 255)
    } else {
        let heads = (sectors / 17).div_ceil(1024).max(4);
        match (heads, sectors / 17) {
            (heads, tracks) if heads <= 16 && tracks < heads * 1024 => (heads, 17),
            _ if sectors / 31 < 16 * 1024 => (16, 31),
            _ => (16, 63),
        }
    };
    let cylinders = sectors / per_track / heads;
    let byte = |value: u64| u8::try_from(value).unwrap_or(u8::MAX);
    (u16::try_from(cylinders).unwrap_or(u16::MAX), byte(heads), byte(per_track))
}

/// The position of the block allocation table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Before the blocks, as in images by all known programs.
    First,
    /// After the blocks.
    Last,
}

/// Describes a dynamic image to build.
#[derive(Debug, Clone)]
pub struct Dynamic {
    /// The footer, which is also copied to the start of the file.
    pub footer: Footer,
    /// Size of a block in bytes, without its bitmap.
    pub block_size: usize,
    /// Index and content of the allocated blocks, in file order. Shorter content is padded with
    /// zeros.
    pub blocks: Vec<(usize, Vec<u8>)>,
    /// The byte with which the sector bitmaps are filled.
    pub bitmap: u8,
    /// The position of the table.
    pub table: Table,
    /// Number of table entries beyond those that the disk needs.
    pub spare_entries: usize,
    /// "Parent Unicode Name".
    pub parent: String,
}

impl Dynamic {
    /// A disk of `size` bytes without allocated blocks, as Hyper-V writes it.
    pub fn new(size: u64, block_size: usize) -> Self {
        Self {
            footer: Footer { disk_type: 3, data_offset: SECTOR as u64, ..Footer::fixed(size) },
            block_size,
            blocks: Vec::new(),
            bitmap: 0xff,
            table: Table::First,
            spare_entries: 0,
            parent: String::new(),
        }
    }

    /// Returns the disk, whose size is "Current Size".
    pub fn disk(&self) -> Vec<u8> {
        let mut disk = vec![0; usize::try_from(self.footer.current_size).unwrap_or(usize::MAX)];
        for (index, content) in &self.blocks {
            let start = index * self.block_size;
            let end = disk.len().min(start + content.len());
            disk[start..end].copy_from_slice(&content[..end - start]);
        }
        disk
    }

    /// Builds the image.
    pub fn bytes(&self) -> Vec<u8> {
        let footer = self.footer.bytes();
        let entries = self.entries();
        let table_bytes = (entries * 4).next_multiple_of(SECTOR);
        let tables_at = SECTOR + DYNAMIC_HEADER;
        let bitmap_bytes = (self.block_size / SECTOR).div_ceil(8).next_multiple_of(SECTOR);
        let block_bytes = bitmap_bytes + self.block_size;
        let (table_at, blocks_at) = match self.table {
            Table::First => (tables_at, tables_at + table_bytes),
            Table::Last => (tables_at + self.blocks.len() * block_bytes, tables_at),
        };

        // "Block Allocation Table": the sector of each block's bitmap, or all ones for an
        // unallocated block.
        let mut table = vec![0xff; table_bytes];
        let mut blocks = Vec::new();
        for (index, content) in &self.blocks {
            let sector = u32::try_from((blocks_at + blocks.len()) / SECTOR).unwrap_or(u32::MAX);
            table[index * 4..index * 4 + 4].copy_from_slice(&sector.to_be_bytes());
            blocks.resize(blocks.len() + bitmap_bytes, self.bitmap);
            blocks.extend_from_slice(content);
            blocks.resize(blocks.len() + self.block_size - content.len(), 0);
        }
        let header = self.header(table_at, entries);
        match self.table {
            Table::First => [&footer[..], &header, &table, &blocks, &footer].concat(),
            Table::Last => [&footer[..], &header, &blocks, &table, &footer].concat(),
        }
    }

    fn entries(&self) -> usize {
        let size = usize::try_from(self.footer.current_size).unwrap_or(usize::MAX);
        size.div_ceil(self.block_size) + self.spare_entries
    }

    /// The header ("Dynamic Disk Header Format").
    fn header(&self, table_at: usize, entries: usize) -> Vec<u8> {
        let mut header = vec![0; DYNAMIC_HEADER];
        let mut put = |at: usize, field: &[u8]| header[at..at + field.len()].copy_from_slice(field);
        put(0, b"cxsparse");
        put(8, &u64::MAX.to_be_bytes());
        put(16, &(table_at as u64).to_be_bytes());
        put(24, &0x1_0000_u32.to_be_bytes());
        put(28, &u32::try_from(entries).unwrap_or(u32::MAX).to_be_bytes());
        put(32, &u32::try_from(self.block_size).unwrap_or(u32::MAX).to_be_bytes());
        let name: Vec<u8> = self.parent.encode_utf16().flat_map(u16::to_be_bytes).collect();
        put(64, &name);
        seal(&mut header, HEADER_CHECKSUM_AT);
        header
    }
}
