//! Kinds of disk content.

use bytes::Bytes;

use crate::aligned;

/// The kind of content of a disk, as far as it affects speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only zeros.
    Zeros,
    /// Lines of a log, which compress by a factor of about five.
    Text,
    /// Random bytes, which do not compress.
    Noise,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Zeros, Self::Text, Self::Noise];

    /// The kind's name in benchmark names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zeros => "zeros",
            Self::Text => "text",
            Self::Noise => "noise",
        }
    }

    /// Returns `length` bytes of this kind, aligned for direct I/O.
    pub fn data(self, length: usize) -> Bytes {
        let mut random = XorShift(0x9E37_79B9_7F4A_7C15);
        let mut bytes = Vec::with_capacity(length + 128);
        match self {
            Self::Zeros => {}
            Self::Text => {
                while bytes.len() < length {
                    bytes.extend(line(&mut random).as_bytes());
                }
            }
            Self::Noise => {
                while bytes.len() < length {
                    bytes.extend(random.next().to_le_bytes());
                }
            }
        }
        bytes.resize(length, 0);
        aligned(&bytes)
    }
}

fn line(random: &mut XorShift) -> String {
    const UNITS: [&str; 6] = ["kernel", "systemd", "sshd", "cron", "dhclient", "cloud-init"];
    let bits = random.next();
    let unit = UNITS.iter().cycle().nth(usize::from(bits.to_le_bytes()[7])).unwrap_or(&"");
    format!(
        "Jan 01 {:02}:{:02}:{:02} host {unit}[{}]: started session {} of user root\n",
        bits % 24,
        (bits >> 8) % 60,
        (bits >> 16) % 60,
        (bits >> 24) % 5000,
        (bits >> 40) % 100_000,
    )
}

/// Marsaglia's random number generator ("Xorshift RNGs", 2003) with the shifts 13, 7, 17.
struct XorShift(u64);

impl XorShift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
