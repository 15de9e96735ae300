//! Builds VHDX images byte by byte that `qemu-img` does not write (\[MS-VHDX\]).

/// Alignment of the objects in the file (2.1).
const MIB: usize = 1 << 20;
/// Offsets of the two headers (2.2).
pub const HEADERS_AT: [usize; 2] = [64 << 10, 128 << 10];
/// Size of a header (2.2).
pub const HEADER_BYTES: usize = 4 << 10;
/// Offsets of the two copies of the region table (2.2).
pub const REGION_TABLES_AT: [usize; 2] = [192 << 10, 256 << 10];
/// Size of a region table (2.2).
pub const REGION_TABLE_BYTES: usize = 64 << 10;
/// Offset of the log in the images that are built here.
const LOG_AT: usize = MIB;
/// Offset of the metadata region in the images that are built here.
pub const METADATA_AT: usize = 2 * MIB;
/// Offset of the items in the metadata region.
pub const ITEMS_AT: usize = METADATA_AT + (64 << 10);

/// GUIDs in their text form; [`guid`] returns the bytes that are in the file.
const BAT_REGION: &str = "2DC27766-F623-4200-9D64-115E9BFD4A08";
const METADATA_REGION: &str = "8B7CA206-4790-4B9A-B8FE-575F050F886E";
const FILE_PARAMETERS: &str = "CAA16737-FA36-4D43-B3B6-33F0AA44E76B";
const VIRTUAL_DISK_SIZE: &str = "2FA54224-CD1B-4876-B211-5DBED83BF4B8";
const VIRTUAL_DISK_ID: &str = "BECA12AB-B2E6-4523-93EF-C309E000C746";
const LOGICAL_SECTOR_SIZE: &str = "8141BF1D-A96F-4709-BA47-F233A8FAAB5F";
const PHYSICAL_SECTOR_SIZE: &str = "CDA348C7-445D-4471-9CC9-E9885251C556";
const PARENT_LOCATOR: &str = "A8D35F2D-B30B-454D-ABF7-D3D84834AB0C";
/// The only parent locator type (2.6.2.6.3).
const VHDX_LOCATOR: &str = "B04AEFB7-D19E-4A81-B789-25B8E9445913";

/// The state of a payload block (2.5.1.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// State 6, with this content, which is padded with zeros.
    Present(Vec<u8>),
    /// Any other state, in which the block occupies no space in the file.
    Absent(u8),
}

/// Describes an image to build.
#[derive(Debug, Clone)]
pub struct Vhdx {
    /// Size of the disk in bytes.
    pub virtual_size: u64,
    /// Size of a payload block in bytes.
    pub block_size: usize,
    /// Size of a logical sector: 512 or 4096.
    pub sector_size: u32,
    /// The flag "LeaveBlocksAllocated".
    pub is_fixed: bool,
    /// Index and state of blocks, in file order. All others have state 0.
    pub blocks: Vec<(usize, Block)>,
    /// True if the block allocation table comes after the blocks.
    pub table_last: bool,
    /// Sequence numbers of the two headers.
    pub sequence: [u64; 2],
    /// The first byte of the log's GUID in each header. If it is not zero, the log must be
    /// replayed.
    pub log_guid: [u8; 2],
    /// The path of the parent image, if any.
    pub parent: Option<String>,
    /// Additional regions: GUID, offset, length, and whether the region is required.
    pub regions: Vec<([u8; 16], usize, usize, bool)>,
    /// Additional empty metadata items: GUID, and whether the item is required.
    pub items: Vec<([u8; 16], bool)>,
}

impl Vhdx {
    /// A disk of `virtual_size` bytes without allocated blocks, as Hyper-V writes it.
    pub fn new(virtual_size: u64, block_size: usize) -> Self {
        Self {
            virtual_size,
            block_size,
            sector_size: 512,
            is_fixed: false,
            blocks: Vec::new(),
            table_last: false,
            sequence: [8, 9],
            log_guid: [0; 2],
            parent: None,
            regions: Vec::new(),
            items: Vec::new(),
        }
    }

    /// Returns the disk.
    pub fn disk(&self) -> Vec<u8> {
        let mut disk = vec![0; usize::try_from(self.virtual_size).unwrap_or(usize::MAX)];
        for (index, block) in &self.blocks {
            let Block::Present(content) = block else { continue };
            let start = index * self.block_size;
            let end = disk.len().min(start + content.len());
            disk[start..end].copy_from_slice(&content[..end - start]);
        }
        disk
    }

    /// The offset of the block allocation table.
    pub fn table_at(&self) -> usize {
        let present = |(_, block): &&(usize, Block)| matches!(block, Block::Present(_));
        let blocks = self.blocks.iter().filter(present).count() * self.block_size;
        METADATA_AT + MIB + if self.table_last { blocks } else { 0 }
    }

    /// Builds the image: headers, log and metadata, then table and blocks in the order that
    /// `table_last` chooses.
    pub fn bytes(&self) -> Vec<u8> {
        let table_bytes = (self.entries() * 8).next_multiple_of(MIB);
        let table_at = self.table_at();
        let blocks_at = if self.table_last { METADATA_AT + MIB } else { table_at + table_bytes };

        let mut table = vec![0; table_bytes];
        let mut blocks: Vec<u8> = Vec::new();
        for (index, block) in &self.blocks {
            let entry = match block {
                Block::Absent(state) => u64::from(*state),
                // Bits 20 to 63 of an entry are the offset.
                Block::Present(_) => (blocks_at + blocks.len()) as u64 | 6,
            };
            // The payload entries of each chunk are followed by an entry for its sector bitmap
            // (2.5).
            let at = (index + index / self.chunk_blocks()) * 8;
            table[at..at + 8].copy_from_slice(&entry.to_le_bytes());
            if let Block::Present(content) = block {
                blocks.extend_from_slice(content);
                blocks.resize(blocks.len() + self.block_size - content.len(), 0);
            }
        }
        let mut bytes = self.first_mib(table_at, table_bytes);
        bytes.resize(METADATA_AT, 0);
        bytes.extend(self.metadata());
        let (first, second) = if self.table_last { (blocks, table) } else { (table, blocks) };
        bytes.extend(first);
        bytes.extend(second);
        bytes
    }

    /// Number of payload blocks in a chunk (2.4).
    fn chunk_blocks(&self) -> usize {
        let sector = usize::try_from(self.sector_size).unwrap_or(usize::MAX);
        (1 << 23) * sector / self.block_size
    }

    fn entries(&self) -> usize {
        let blocks =
            usize::try_from(self.virtual_size).unwrap_or(usize::MAX).div_ceil(self.block_size);
        blocks + blocks.saturating_sub(1) / self.chunk_blocks()
    }

    /// The file identifier, the headers and the region tables (2.2).
    fn first_mib(&self, table_at: usize, table_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; MIB];
        bytes[..8].copy_from_slice(b"vhdxfile");
        for (index, at) in HEADERS_AT.into_iter().enumerate() {
            bytes[at..at + HEADER_BYTES].copy_from_slice(&self.header(index));
        }
        let known = [
            (guid(BAT_REGION), table_at, table_bytes, true),
            (guid(METADATA_REGION), METADATA_AT, MIB, true),
        ];
        let regions: Vec<_> = known.iter().chain(&self.regions).collect();
        let mut table = vec![0; REGION_TABLE_BYTES];
        put(&mut table, 0, b"regi");
        put32(&mut table, 8, regions.len());
        for (index, (guid, offset, length, is_required)) in regions.into_iter().enumerate() {
            let at = 16 + index * 32;
            put(&mut table, at, guid);
            put(&mut table, at + 16, &(*offset as u64).to_le_bytes());
            put32(&mut table, at + 24, *length);
            put32(&mut table, at + 28, usize::from(*is_required));
        }
        seal(&mut table);
        for at in REGION_TABLES_AT {
            put(&mut bytes, at, &table);
        }
        bytes
    }

    /// A header (2.2.2).
    fn header(&self, index: usize) -> Vec<u8> {
        let mut header = vec![0; HEADER_BYTES];
        put(&mut header, 0, b"head");
        put(&mut header, 8, &self.sequence[index].to_le_bytes());
        // FileWriteGuid and DataWriteGuid. The LogGuid follows.
        put(&mut header, 16, &[0xa5; 32]);
        header[48] = self.log_guid[index];
        // Version 1. The version of the log is 0.
        header[66] = 1;
        put32(&mut header, 68, MIB);
        put(&mut header, 72, &(LOG_AT as u64).to_le_bytes());
        seal(&mut header);
        header
    }

    /// The metadata region (2.6): a table, followed by its items.
    fn metadata(&self) -> Vec<u8> {
        let flags = u32::from(self.is_fixed) | u32::from(self.parent.is_some()) << 1;
        let block_size = u32::try_from(self.block_size).unwrap_or(u32::MAX);
        let parameters = [block_size.to_le_bytes(), flags.to_le_bytes()].concat();
        // In the flags, bit 1 is IsVirtualDisk and bit 2 is IsRequired.
        let mut items = vec![
            (guid(FILE_PARAMETERS), parameters, 4),
            (guid(VIRTUAL_DISK_SIZE), self.virtual_size.to_le_bytes().to_vec(), 6),
            (guid(VIRTUAL_DISK_ID), vec![0x77; 16], 6),
            (guid(LOGICAL_SECTOR_SIZE), self.sector_size.to_le_bytes().to_vec(), 6),
            (guid(PHYSICAL_SECTOR_SIZE), 4096_u32.to_le_bytes().to_vec(), 6),
        ];
        if let Some(parent) = &self.parent {
            items.push((guid(PARENT_LOCATOR), locator(parent), 4));
        }
        for (guid, is_required) in &self.items {
            items.push((*guid, Vec::new(), if *is_required { 4 } else { 0 }));
        }

        let mut region = vec![0; MIB];
        put(&mut region, 0, b"metadata");
        region[10] = u8::try_from(items.len()).unwrap_or(u8::MAX);
        let mut offset = ITEMS_AT - METADATA_AT;
        for (index, (guid, content, flags)) in items.into_iter().enumerate() {
            let at = 32 + index * 32;
            put(&mut region, at, &guid);
            put32(&mut region, at + 16, offset);
            put32(&mut region, at + 20, content.len());
            put32(&mut region, at + 24, flags);
            put(&mut region, offset, &content);
            offset += content.len();
        }
        region
    }
}

/// A parent locator (2.6.2.6) with two key-value pairs.
fn locator(parent: &str) -> Vec<u8> {
    let utf16 =
        |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
    let pairs = [
        (utf16("parent_linkage"), utf16("{83ed22f7-7bfb-4b23-9dd6-7d4c0d4d9a9c}")),
        (utf16("relative_path"), utf16(parent)),
    ];
    let mut locator = guid(VHDX_LOCATOR).to_vec();
    locator.extend([0, 0, 2, 0]);
    let mut offset = 20 + pairs.len() * 12;
    for (key, value) in &pairs {
        for at in [offset, offset + key.len()] {
            locator.extend(u32::try_from(at).unwrap_or(u32::MAX).to_le_bytes());
        }
        for text in [key, value] {
            locator.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
        }
        offset += key.len() + value.len();
    }
    for (key, value) in pairs {
        locator.extend(key);
        locator.extend(value);
    }
    locator
}

/// Writes the CRC-32C of a header or region table to bytes 4 to 7, which count as zero in it.
pub fn seal(structure: &mut [u8]) {
    structure[4..8].fill(0);
    let sum = crc32c::crc32c(structure);
    structure[4..8].copy_from_slice(&sum.to_le_bytes());
}

/// The bytes of a GUID in the file, whose first three parts are little-endian.
pub fn guid(text: &str) -> [u8; 16] {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let mut bytes = u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes();
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    bytes
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

fn put32(bytes: &mut [u8], at: usize, value: usize) {
    put(bytes, at, &u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes());
}
