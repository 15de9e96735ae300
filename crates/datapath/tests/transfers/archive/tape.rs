//! Builds archives entry by entry, including some that no program would write.

/// A tar archive under construction.
#[derive(Clone, Default)]
pub(crate) struct Tape(pub(crate) Vec<u8>);

/// The fields of a header.
#[derive(Clone)]
pub(crate) struct Fields {
    pub(crate) name: Vec<u8>,
    pub(crate) typeflag: u8,
    pub(crate) link: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) mtime: u64,
    pub(crate) size: u64,
    pub(crate) magic: [u8; 8],
}

impl Fields {
    pub(crate) fn new(typeflag: u8, name: impl AsRef<[u8]>) -> Self {
        Self {
            name: name.as_ref().to_vec(),
            typeflag,
            link: Vec::new(),
            mode: 0o644,
            mtime: 1_700_000_000,
            size: 0,
            magic: *b"ustar\x0000",
        }
    }

    /// Returns the header with a correct checksum.
    pub(crate) fn block(&self) -> [u8; 512] {
        let mut block = [0; 512];
        block[..self.name.len()].copy_from_slice(&self.name);
        block[100..107].copy_from_slice(format!("{:07o}", self.mode).as_bytes());
        block[108..115].copy_from_slice(b"0000000");
        block[116..123].copy_from_slice(b"0000000");
        block[124..135].copy_from_slice(format!("{:011o}", self.size).as_bytes());
        block[136..147].copy_from_slice(format!("{:011o}", self.mtime).as_bytes());
        block[156] = self.typeflag;
        block[157..157 + self.link.len()].copy_from_slice(&self.link);
        block[257..265].copy_from_slice(&self.magic);
        seal(&mut block);
        block
    }
}

/// Inserts the checksum.
pub(crate) fn seal(block: &mut [u8; 512]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

impl Tape {
    /// Appends a header and its data, padded to whole blocks.
    pub(crate) fn entry(mut self, fields: &Fields, data: &[u8]) -> Self {
        self.0.extend(fields.block());
        self.data(data)
    }

    pub(crate) fn data(mut self, data: &[u8]) -> Self {
        self.0.extend(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn file(self, name: impl AsRef<[u8]>, data: &[u8]) -> Self {
        let mut fields = Fields::new(b'0', name);
        fields.size = data.len() as u64;
        self.entry(&fields, data)
    }

    pub(crate) fn directory(self, name: impl AsRef<[u8]>, mode: u32) -> Self {
        let mut fields = Fields::new(b'5', name);
        fields.mode = mode;
        self.entry(&fields, b"")
    }

    pub(crate) fn link(
        self,
        typeflag: u8,
        name: impl AsRef<[u8]>,
        target: impl AsRef<[u8]>,
    ) -> Self {
        let mut fields = Fields::new(typeflag, name);
        fields.link = target.as_ref().to_vec();
        self.entry(&fields, b"")
    }

    pub(crate) fn symlink(self, name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        self.link(b'2', name, target)
    }

    pub(crate) fn hard_link(self, name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        self.link(b'1', name, target)
    }

    /// Appends an extended header with these records.
    pub(crate) fn pax(self, records: &[(&str, &str)]) -> Self {
        let mut body = Vec::new();
        for (key, value) in records {
            let text = format!(" {key}={value}\n");
            let mut length = text.len() + 1;
            while length != text.len() + length.to_string().len() {
                length += 1;
            }
            body.extend(format!("{length}{text}").as_bytes());
        }
        let mut fields = Fields::new(b'x', "PaxHeaders/x");
        fields.size = body.len() as u64;
        self.entry(&fields, &body)
    }

    /// Appends the blocks of zeros at the end.
    pub(crate) fn end(self) -> Vec<u8> {
        [self.0, vec![0; 1024]].concat()
    }
}
