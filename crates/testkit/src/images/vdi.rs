//! Builds VDI images byte by byte as VirtualBox leaves them (`VDICore.h`). qemu-img writes blocks
//! only in order, and only one kind of header.

use std::collections::HashMap;

/// Size of a block in bytes.
pub const BLOCK_BYTES: usize = 1 << 20;

/// The state of a block of the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// Entry 0xffff_ffff: never written.
    Free,
    /// Entry 0xffff_fffe: discarded.
    Zero,
    /// Stored as the image's block with this index. Several blocks of the disk may share one.
    At(u32),
}

/// Describes an image to build.
#[derive(Debug, Clone)]
pub struct Vdi {
    /// The text at the start of the file.
    pub text: &'static str,
    /// Stated header size: 400 in version 1.1, 384 in images by QEMU.
    pub header_bytes: u32,
    /// The image type. 1: dynamic, 2: static, 3: undo, 4: differencing.
    pub kind: u32,
    /// Size of the disk in bytes.
    pub virtual_size: u64,
    /// The block map.
    pub map: Vec<Block>,
    /// Offset of the block map.
    pub map_offset: u32,
    /// Offset of block 0.
    pub data_offset: u32,
    /// The image's blocks. Shorter ones are padded with zeros.
    pub blocks: Vec<Vec<u8>>,
    /// The field `cbBlockExtra`.
    pub block_extra: u32,
    /// UUID of the parent image.
    pub link: [u8; 16],
    /// Bytes to overwrite at these offsets, to build images that no program would write.
    pub patches: HashMap<usize, Vec<u8>>,
}

impl Vdi {
    /// A dynamic image as VirtualBox 4 and later writes it, with map and data at multiples of 1
    /// MiB.
    pub fn new(virtual_size: u64, map: Vec<Block>, blocks: Vec<Vec<u8>>) -> Self {
        Self {
            text: "<<< Oracle VM VirtualBox Disk Image >>>\n",
            header_bytes: 400,
            kind: 1,
            virtual_size,
            map,
            map_offset: 1 << 20,
            data_offset: 2 << 20,
            blocks,
            block_extra: 0,
            link: [0; 16],
            patches: HashMap::new(),
        }
    }

    /// Builds the image.
    pub fn build(&self) -> Vec<u8> {
        let map_end = index(self.map_offset) + 4 * self.map.len();
        let data_end = index(self.data_offset) + self.blocks.len() * BLOCK_BYTES;
        let mut image = vec![0; map_end.max(data_end).max(512)];
        let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, self.text.as_bytes());
        let allocated = self.map.iter().filter(|block| matches!(block, Block::At(_))).count();
        let (map, allocated) = (number(self.map.len()), number(allocated));
        for (at, value) in [
            (0x40, 0xbeda_107f),
            (0x44, 0x0001_0001),
            (0x48, self.header_bytes),
            (0x4c, self.kind),
            (0x154, self.map_offset),
            (0x158, self.data_offset),
            (0x168, 512),
            (0x178, number(BLOCK_BYTES)),
            (0x17c, self.block_extra),
            (0x180, map),
            (0x184, allocated),
        ] {
            put(at, &value.to_le_bytes());
        }
        put(0x54, b"made by hand");
        put(0x170, &self.virtual_size.to_le_bytes());
        put(0x188, &[0x11; 16]);
        put(0x198, &[0x22; 16]);
        put(0x1a8, &self.link);
        for (entry, block) in self.map.iter().enumerate() {
            let value = match block {
                Block::Free => 0xffff_ffff,
                Block::Zero => 0xffff_fffe,
                Block::At(place) => *place,
            };
            put(index(self.map_offset) + 4 * entry, &value.to_le_bytes());
        }
        for (place, block) in self.blocks.iter().enumerate() {
            put(index(self.data_offset) + place * BLOCK_BYTES, block);
        }
        for (at, bytes) in &self.patches {
            put(*at, bytes);
        }
        image
    }

    /// Returns the disk in the image, according to `VDICore.h`.
    pub fn disk(&self) -> Vec<u8> {
        let mut disk = vec![0; self.map.len() * BLOCK_BYTES];
        for (chunk, block) in disk.chunks_exact_mut(BLOCK_BYTES).zip(&self.map) {
            if let Block::At(place) = block
                && let Some(bytes) = self.blocks.get(index(*place))
            {
                chunk[..bytes.len()].copy_from_slice(bytes);
            }
        }
        disk.truncate(
            usize::try_from(self.virtual_size.next_multiple_of(512)).unwrap_or(usize::MAX),
        );
        disk
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
