//! Inflates whole clusters whose size is known.
//!
//! Deflate and zlib are decoded by libdeflate, which requires the complete input and output at
//! once. A deflate or zstd cluster is complete when the output is full, whether or not the stream
//! ends there; QEMU does the same. A zlib stream must be complete, because of its checksum.

use diskimage::{ClusterCompression, CompressedClusters, Error as ImageError, Guest};
use flate2::{Decompress, FlushDecompress};
use zstd::zstd_safe::{DCtx, InBuffer, OutBuffer, find_frame_compressed_size, get_error_name};

/// Decoders for one thread. Their state is reused from cluster to cluster.
#[derive(Default)]
pub struct Inflater {
    deflate: libdeflater::Decompressor,
    zstd: DCtx<'static>,
    /// The result of [`Inflater::inflate_to_buffer`].
    buffer: Vec<u8>,
}

/// Returns the error for a compressed cluster of an image that does not state its compression.
pub fn compression_error(guest: Guest) -> ImageError {
    let reason = "the image does not state how its clusters are compressed".to_owned();
    ImageError::CompressedCluster { guest, cluster_size: 0, reason }
}

impl Inflater {
    /// Inflates the cluster at `guest` of a disk of `virtual_size` bytes. The next call replaces
    /// the result.
    pub fn inflate_to_buffer(
        &mut self,
        clusters: Option<CompressedClusters>,
        guest: Guest,
        stored: &[u8],
        virtual_size: u64,
    ) -> Result<&[u8], ImageError> {
        let clusters = clusters.ok_or_else(|| compression_error(guest))?;
        let bytes = |count| usize::try_from(count).unwrap_or(0);
        let needed = bytes(virtual_size.saturating_sub(guest.0).min(clusters.size));
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(bytes(clusters.size), 0);
        let inflated = self.inflate_cluster(clusters, guest, stored, &mut buffer, needed);
        self.buffer = buffer;
        inflated.map(|()| &self.buffer[..])
    }

    /// Inflates the cluster at `guest` from `stored` to `output`, which has the size of a cluster.
    /// Only the first `needed` bytes lie on the disk.
    pub fn inflate_cluster(
        &mut self,
        clusters: CompressedClusters,
        guest: Guest,
        stored: &[u8],
        output: &mut [u8],
        needed: usize,
    ) -> Result<(), ImageError> {
        let cluster_size = clusters.size;
        self.inflate(clusters.compression, stored, output, needed)
            .map_err(|reason| ImageError::CompressedCluster { guest, cluster_size, reason })
    }

    /// Fills `output` from `input`. Bytes after the end of the compressed data are padding. A zlib
    /// stream may produce as few as `needed` bytes: the last grain of a disk may be stored without
    /// the part beyond the end of the disk.
    fn inflate(
        &mut self,
        codec: ClusterCompression,
        input: &[u8],
        output: &mut [u8],
        needed: usize,
    ) -> Result<(), String> {
        match codec {
            ClusterCompression::Deflate => self.inflate_deflate(input, output),
            ClusterCompression::Zlib => self.inflate_zlib(input, output, needed),
            ClusterCompression::Zstd => self.inflate_zstd(input, output),
        }
    }

    fn inflate_deflate(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), String> {
        // libdeflate is the fastest, but requires a complete stream. QEMU accepts some streams that
        // libdeflate rejects: QEMU only requires that the cluster is filled, whether or not the
        // stream ends there.
        if self.deflate.deflate_decompress(input, output) == Ok(output.len()) {
            return Ok(());
        }
        inflate_until_full(Decompress::new(false), input, output)
    }

    /// Inflates a zlib stream. The stream must be complete, as QEMU requires too, because its
    /// checksum at the end detects damage.
    fn inflate_zlib(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        needed: usize,
    ) -> Result<(), String> {
        match self.deflate.zlib_decompress(input, output) {
            Ok(length) if length >= needed => Ok(()),
            Ok(length) => Err(format!("zlib: the stream ends after {length} bytes")),
            Err(error) => Err(format!("zlib: {error}")),
        }
    }

    fn inflate_zstd(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), String> {
        // Decoding in one call writes directly into `output`; decoding as a stream writes into the
        // window first, and copies. The stream is the fallback, because QEMU accepts some frames
        // that decoding in one call rejects: QEMU only requires that the cluster is filled.
        if let Ok(frame) = find_frame_compressed_size(input)
            && let Some(frame) = input.get(..frame)
            && self.zstd.decompress(output, frame) == Ok(output.len())
        {
            return Ok(());
        }
        let wanted = output.len();
        self.zstd.init().map_err(|code| get_error_name(code).to_owned())?;
        let mut input = InBuffer::around(input);
        let mut output = OutBuffer::around(output);
        while output.pos() < wanted {
            let before = (input.pos(), output.pos());
            self.zstd
                .decompress_stream(&mut output, &mut input)
                .map_err(|code| format!("zstd: {}", get_error_name(code)))?;
            if (input.pos(), output.pos()) == before {
                return Err(format!("zstd: the stream ends after {} bytes", output.pos()));
            }
        }
        Ok(())
    }
}

/// Inflates until `output` is full, whether or not the stream ends there.
fn inflate_until_full(
    mut decoder: Decompress,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), String> {
    let mut filled = 0;
    loop {
        let consumed = usize::try_from(decoder.total_in()).unwrap_or(usize::MAX);
        let rest = input.get(consumed..).unwrap_or_default();
        decoder
            .decompress(rest, &mut output[filled..], FlushDecompress::None)
            .map_err(|error| format!("deflate: {error}"))?;
        let now = usize::try_from(decoder.total_out()).unwrap_or(usize::MAX);
        if now >= output.len() {
            return Ok(());
        }
        if now == filled && usize::try_from(decoder.total_in()) == Ok(consumed) {
            return Err(format!("deflate: the stream ends after {now} bytes"));
        }
        filled = now;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::Compression;
    use flate2::read::{DeflateEncoder, ZlibEncoder};

    use super::*;

    fn packed(codec: ClusterCompression, data: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        let level = Compression::default();
        match codec {
            ClusterCompression::Deflate => {
                DeflateEncoder::new(data, level).read_to_end(&mut packed).unwrap();
            }
            ClusterCompression::Zlib => {
                ZlibEncoder::new(data, level).read_to_end(&mut packed).unwrap();
            }
            ClusterCompression::Zstd => packed = zstd::bulk::compress(data, 3).unwrap(),
        }
        packed
    }

    #[test]
    fn padding_after_the_stream_is_ignored() {
        use ClusterCompression::{Deflate, Zlib, Zstd};
        let data: Vec<u8> = (0..65536u32).map(|i| (i / 7 % 251) as u8).collect();
        let mut inflater = Inflater::default();
        for codec in [Deflate, Zlib, Zstd] {
            let input = [&packed(codec, &data)[..], &[0xaa; 300]].concat();
            let mut output = vec![0; data.len()];
            inflater.inflate(codec, &input, &mut output, data.len()).unwrap();
            assert!(output == data);
        }
        // A full cluster is enough even if the stream continues, and the last grain may be short.
        for (codec, length, needed) in [(Deflate, 70_000, 65_536), (Zlib, 1536, 1536)] {
            let mut output = vec![0; 65_536];
            let input = packed(codec, &vec![7; length]);
            inflater.inflate(codec, &input, &mut output, needed).unwrap();
            assert!(output[..needed].iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn short_and_corrupt_streams_are_errors() {
        use ClusterCompression::{Deflate, Zlib, Zstd};
        let mut wrong_checksum = packed(Zlib, &[7; 65_536]);
        *wrong_checksum.last_mut().unwrap() ^= 1;
        let mut cases = vec![(Zlib, packed(Zlib, &[7; 70_000])), (Zlib, wrong_checksum)];
        for codec in [Deflate, Zlib, Zstd] {
            let short = packed(codec, &[7; 60_000]);
            cases.extend([short, vec![0xff; 100], Vec::new()].map(|input| (codec, input)));
        }
        for (codec, input) in cases {
            let mut output = vec![0; 65_536];
            assert!(Inflater::default().inflate(codec, &input, &mut output, 65_536).is_err());
        }
    }
}
