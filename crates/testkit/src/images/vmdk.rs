//! Builds VMDK images byte by byte, as programs other than qemu-img write them and as none should
//! ("Virtual Disk Format 5.0", VMware 2011; the comments name its sections).

use std::io::Write;

use flate2::write::ZlibEncoder;

use crate::fail::OrFail;

const SECTOR: usize = 512;
/// Size of the descriptor: the space that all programs reserve for it.
const DESCRIPTOR_SECTORS: usize = 20;
/// Value of `gdOffset` if a footer states the position of the grain directory.
const AT_END: u64 = u64::MAX;
/// Marker types ("Stream-Optimized Compressed Sparse Extents").
const END_OF_STREAM: u32 = 0;
const GRAIN_TABLE: u32 = 1;
const GRAIN_DIRECTORY: u32 = 2;
const FOOTER: u32 = 3;

/// The state of a grain of the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grain {
    /// Not allocated: no entry in a grain table.
    Hole,
    /// A grain of zeros, marked by a special entry.
    Zeroed,
    /// A stored grain whose pattern begins with this byte.
    Data(u8),
}

/// The position of the grain directory and the grain tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tables {
    /// Before the grains, after a redundant copy, as in images by VirtualBox and qemu-img.
    First,
    /// After the grains. The header states the position.
    Last,
    /// As in streams by VMware and VirtualBox: each table follows its grains if those are stored
    /// together; otherwise all tables follow all grains. Then come the directory, a footer that
    /// states its position, and an end-of-stream marker.
    Footer,
    /// The same parts in an order that exporters of other makers choose. All grains come first.
    Exported(ExportLayout),
}

/// What exporters write in another way than VMware and VirtualBox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportLayout {
    /// Number of sectors of zeros before the tables.
    pub padding: u8,
    /// True if one marker, which states 0 sectors, is for all tables.
    pub is_marked_once: bool,
    /// True if tables and directory are written twice.
    pub is_redundant: bool,
    /// True if the header states no offset for the redundant directory, as for the other one.
    pub is_redundant_at_end: bool,
}

impl ExportLayout {
    /// The layout of Xen Orchestra.
    pub const XEN_ORCHESTRA: Self =
        Self { padding: 200, is_marked_once: true, is_redundant: true, is_redundant_at_end: false };
}

/// Describes an image to build.
#[derive(Debug, Clone)]
pub struct Vmdk {
    /// Size of a grain in sectors.
    pub grain_sectors: u64,
    /// Number of entries in a grain table.
    pub table_entries: u32,
    /// The grains of the disk.
    pub grains: Vec<Grain>,
    /// Number of sectors by which the last grain is shortened.
    pub cut_sectors: u64,
    /// The position of the tables.
    pub tables: Tables,
    /// True if grains are zlib streams and everything after the descriptor has markers.
    pub compressed: bool,
    /// Keys by which the stored grains are sorted. A missing key counts as 0, and grains with
    /// equal keys keep the order of the disk.
    pub order: Vec<u16>,
}

/// An image under construction.
struct Builder<'v> {
    vmdk: &'v Vmdk,
    bytes: Vec<u8>,
    /// The table entry of each grain.
    entries: Vec<u32>,
    /// The sector of each grain table.
    directory: Vec<u32>,
}

impl Vmdk {
    /// A small disk as VirtualBox would write it, with 4 KiB grains and 16 entries in a table.
    pub fn small(tables: Tables, compressed: bool, grains: Vec<Grain>) -> Self {
        Self {
            grain_sectors: 8,
            table_entries: 16,
            grains,
            cut_sectors: 0,
            tables,
            compressed,
            order: Vec::new(),
        }
    }

    /// Size of the disk in sectors.
    pub fn capacity(&self) -> u64 {
        self.grains.len() as u64 * self.grain_sectors - self.cut_sectors
    }

    /// Returns the disk.
    pub fn disk(&self) -> Vec<u8> {
        let grain_bytes = to_usize(self.grain_sectors) * SECTOR;
        let grains: Vec<_> = self.grains.iter().map(|grain| grain.content(grain_bytes)).collect();
        let mut disk = grains.concat();
        disk.truncate(to_usize(self.capacity()) * SECTOR);
        disk
    }

    /// Builds the image.
    pub fn build(&self) -> Vec<u8> {
        let mut builder = Builder {
            vmdk: self,
            bytes: vec![0; SECTOR],
            entries: self.grains.iter().map(|grain| u32::from(*grain == Grain::Zeroed)).collect(),
            directory: vec![0; self.grains.len().div_ceil(self.table_entries as usize)],
        };
        builder.add_descriptor();
        match self.tables {
            Tables::First => builder.tables_first(),
            Tables::Last => builder.tables_last(),
            Tables::Footer => builder.tables_with_footer(),
            Tables::Exported(layout) => builder.tables_of_exporter(layout),
        }
        builder.bytes
    }

    /// The numbers of the stored grains, in file order.
    fn stored(&self) -> Vec<usize> {
        let mut stored: Vec<usize> = (0..self.grains.len())
            .filter(|number| matches!(self.grains[*number], Grain::Data(_)))
            .collect();
        stored.sort_by_key(|number| self.order.get(*number).copied().unwrap_or(0));
        stored
    }

    /// The header ("Hosted Sparse Extent Header").
    fn header(&self, redundant: u64, directory: u64, overhead: u64) -> Vec<u8> {
        // Flags: bits 0 valid newline detection, 1 redundant table, 2 zeroed grains, 16 compressed
        // grains, 17 markers.
        let is_redundant = match self.tables {
            Tables::Exported(layout) => layout.is_redundant,
            _ => redundant != 0,
        };
        let flags: u32 =
            if self.compressed { 0x3_0005 } else { 5 } | if is_redundant { 2 } else { 0 };
        let mut header = Vec::new();
        header.extend(b"KDMV");
        header.extend(1u32.to_le_bytes());
        header.extend(flags.to_le_bytes());
        header.extend(self.capacity().to_le_bytes());
        header.extend(self.grain_sectors.to_le_bytes());
        header.extend(1u64.to_le_bytes());
        header.extend((DESCRIPTOR_SECTORS as u64).to_le_bytes());
        header.extend(self.table_entries.to_le_bytes());
        header.extend(redundant.to_le_bytes());
        header.extend(directory.to_le_bytes());
        header.extend(overhead.to_le_bytes());
        header.push(0);
        header.extend(b"\n \r\n");
        header.extend(u16::from(self.compressed).to_le_bytes());
        header.resize(SECTOR, 0);
        header
    }
}

impl Grain {
    fn content(&self, length: usize) -> Vec<u8> {
        match self {
            Self::Hole | Self::Zeroed => vec![0; length],
            Self::Data(byte) => {
                let step = |index: u8| index.wrapping_mul(7).wrapping_add(*byte);
                let pattern: Vec<u8> = (0..=u8::MAX).map(step).collect();
                pattern.repeat(length / pattern.len())
            }
        }
    }
}

/// An embedded descriptor ("The Disk Descriptor File").
pub fn descriptor(kind: &str, extents: &[&str]) -> String {
    let extents = extents.join("\n");
    format!(
        "# Disk DescriptorFile\nversion=1\nCID=123a5678\nparentCID=ffffffff\ncreateType=\"{kind}\"\n\n# Extent description\n{extents}\n\n# The Disk Data Base\n#DDB\n\nddb.adapterType = \"lsilogic\"\n"
    )
}

impl Builder<'_> {
    fn add_descriptor(&mut self) {
        let kind = if self.vmdk.compressed { "streamOptimized" } else { "monolithicSparse" };
        let extent = format!("RW {} SPARSE \"disk.vmdk\"", self.vmdk.capacity());
        self.bytes.extend(descriptor(kind, &[&extent]).bytes());
        self.bytes.resize((1 + DESCRIPTOR_SECTORS) * SECTOR, 0);
    }

    /// Writes two copies of directory and tables, then the aligned grains.
    fn tables_first(&mut self) {
        let copy = self.directory_sectors() + self.directory.len() * self.table_sectors();
        let places = [self.sector(), self.sector() + copy];
        let overhead = (places[1] + copy).next_multiple_of(to_usize(self.vmdk.grain_sectors));
        self.bytes.resize(overhead * SECTOR, 0);
        self.add_grains();
        for place in places {
            let mut tables = Vec::new();
            for table in 0..self.directory.len() {
                self.directory[table] =
                    to_u32(place + self.directory_sectors() + table * self.table_sectors());
                tables.extend(self.table(table));
            }
            let copied = [self.directory_bytes(), tables].concat();
            self.bytes[place * SECTOR..(place + copy) * SECTOR].copy_from_slice(&copied);
        }
        self.set_header(&self.vmdk.header(places[0] as u64, places[1] as u64, overhead as u64));
    }

    fn tables_last(&mut self) {
        let overhead = self.pad_to_grains();
        self.add_grains();
        for table in 0..self.directory.len() {
            self.directory[table] = to_u32(self.sector());
            let bytes = self.table(table);
            self.bytes.extend(bytes);
        }
        let directory = self.sector();
        self.bytes.extend(self.directory_bytes());
        self.set_header(&self.vmdk.header(0, directory as u64, overhead as u64));
    }

    /// Writes the layout of "Stream-Optimized Compressed Sparse Extents". Grains and tables get
    /// markers only if the image is compressed.
    fn tables_with_footer(&mut self) {
        let overhead = self.pad_to_grains() as u64;
        let per_table = self.vmdk.table_entries as usize;
        let stored = self.vmdk.stored();
        let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
        for grain in stored {
            match groups.last_mut() {
                Some((table, group)) if *table == grain / per_table => group.push(grain),
                _ => groups.push((grain / per_table, vec![grain])),
            }
        }
        let mut tables: Vec<usize> = groups.iter().map(|(table, _)| *table).collect();
        tables.sort_unstable();
        tables.dedup();
        let is_together = tables.len() == groups.len();
        for (table, group) in groups {
            group.into_iter().for_each(|grain| self.add_grain(grain));
            if is_together {
                self.add_table(table);
            }
        }
        let used: Vec<bool> = self
            .entries
            .chunks(per_table)
            .map(|table| table.iter().any(|entry| *entry != 0))
            .collect();
        for (table, is_used) in used.into_iter().enumerate() {
            if is_used && self.directory[table] == 0 {
                self.add_table(table);
            }
        }
        let directory = self.add_directory(self.directory_sectors());
        self.add_footer(0, directory, overhead);
        self.set_header(&self.vmdk.header(0, AT_END, overhead));
    }

    /// Writes what [`ExportLayout`] describes.
    fn tables_of_exporter(&mut self, layout: ExportLayout) {
        let overhead = self.pad_to_grains() as u64;
        self.add_grains();
        self.bytes.resize(self.bytes.len() + usize::from(layout.padding) * SECTOR, 0);
        let mut directories = [0, 0];
        for directory in directories.iter_mut().skip(usize::from(!layout.is_redundant)) {
            if layout.is_marked_once {
                self.add_marker(0, GRAIN_TABLE);
            }
            for table in 0..self.directory.len() {
                if layout.is_marked_once {
                    self.directory[table] = to_u32(self.sector());
                    self.bytes.extend(self.table(table));
                } else {
                    self.add_table(table);
                }
            }
            let sectors = if layout.is_marked_once { 0 } else { self.directory_sectors() };
            *directory = self.add_directory(sectors);
        }
        let [redundant, directory] = directories;
        self.add_footer(redundant, directory, overhead);
        let redundant = if layout.is_redundant_at_end { AT_END } else { 0 };
        self.set_header(&self.vmdk.header(redundant, AT_END, overhead));
    }

    /// Writes the directory behind a marker that states these sectors. Returns its sector.
    fn add_directory(&mut self, sectors: usize) -> u64 {
        self.add_marker(sectors, GRAIN_DIRECTORY);
        let directory = self.sector() as u64;
        self.bytes.extend(self.directory_bytes());
        directory
    }

    fn add_footer(&mut self, redundant: u64, directory: u64, overhead: u64) {
        // The footer has a marker even in uncompressed images, because readers find it by its
        // marker.
        self.bytes.extend(marker(1, FOOTER));
        self.bytes.extend(self.vmdk.header(redundant, directory, overhead));
        self.bytes.extend(marker(0, END_OF_STREAM));
    }

    fn add_grains(&mut self) {
        let stored = self.vmdk.stored();
        stored.into_iter().for_each(|grain| self.add_grain(grain));
    }

    /// Writes a grain: "Grain", or "Grain Marker" if it is compressed.
    fn add_grain(&mut self, number: usize) {
        self.entries[number] = to_u32(self.sector());
        let first = number as u64 * self.vmdk.grain_sectors;
        let length = self.vmdk.grain_sectors.min(self.vmdk.capacity() - first);
        let grain = &self.vmdk.grains[number];
        if self.vmdk.compressed {
            // Like qemu-img, stores only the part of the last grain that is on the disk.
            let deflated = deflated(&grain.content(to_usize(length) * SECTOR));
            self.bytes.extend(first.to_le_bytes());
            self.bytes.extend(to_u32(deflated.len()).to_le_bytes());
            self.bytes.extend(deflated);
        } else {
            self.bytes.extend(grain.content(to_usize(self.vmdk.grain_sectors) * SECTOR));
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(SECTOR), 0);
    }

    /// Writes a grain table, with a marker if the image has markers.
    fn add_table(&mut self, table: usize) {
        self.add_marker(self.table_sectors(), GRAIN_TABLE);
        self.directory[table] = to_u32(self.sector());
        let bytes = self.table(table);
        self.bytes.extend(bytes);
    }

    fn add_marker(&mut self, sectors: usize, kind: u32) {
        if self.vmdk.compressed {
            self.bytes.extend(marker(sectors as u64, kind));
        }
    }

    fn table(&self, table: usize) -> Vec<u8> {
        let per_table = self.vmdk.table_entries as usize;
        let entries = self.entries.chunks(per_table).nth(table).unwrap_or_default();
        in_sectors(entries, self.table_sectors())
    }

    fn directory_bytes(&self) -> Vec<u8> {
        in_sectors(&self.directory, self.directory_sectors())
    }

    fn table_sectors(&self) -> usize {
        (self.vmdk.table_entries as usize * 4).div_ceil(SECTOR)
    }

    fn directory_sectors(&self) -> usize {
        (self.directory.len() * 4).div_ceil(SECTOR)
    }

    fn pad_to_grains(&mut self) -> usize {
        let overhead = self.sector().next_multiple_of(to_usize(self.vmdk.grain_sectors));
        self.bytes.resize(overhead * SECTOR, 0);
        overhead
    }

    fn set_header(&mut self, header: &[u8]) {
        self.bytes[..SECTOR].copy_from_slice(header);
    }

    /// The sector of the next byte to be written.
    fn sector(&self) -> usize {
        self.bytes.len() / SECTOR
    }
}

/// A "Metadata Marker", which fills one sector.
pub fn marker(sectors: u64, kind: u32) -> Vec<u8> {
    let mut marker = Vec::new();
    marker.extend(sectors.to_le_bytes());
    marker.extend(0u32.to_le_bytes());
    marker.extend(kind.to_le_bytes());
    marker.resize(SECTOR, 0);
    marker
}

fn in_sectors(entries: &[u32], sectors: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
    bytes.resize(sectors * SECTOR, 0);
    bytes
}

/// Compresses `data` as a zlib stream (RFC 1950).
fn deflated(data: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).or_fail("deflating");
    encoder.finish().or_fail("deflating")
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).or_fail("test images are small")
}

fn to_u32(value: usize) -> u32 {
    u32::try_from(value).or_fail("test images are small")
}
