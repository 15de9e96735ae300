//! Encodes a disk as the clusters of a qcow2 image.
//!
//! Several threads look for zeros and compress; one thread lays out the image with
//! [`Qcow2Writer`]:
//!
//! ```text
//! blocks::BlockOutlet ─► ClusterEncoder (threads) ─► EncodedStream ─► append_piece
//! ```

use bytes::Bytes;
use diskimage::qcow2::{ImageSink, Qcow2Compression, Qcow2Writer, WRITTEN_CLUSTER_BYTES};
use flate2::{Compress, Compression, FlushCompress, Status};
use stream::zeros::is_zero;

use super::piece::PieceKind;
use super::zstd::{self, FILE_LEAST_SAVING};
use super::{EncodedPiece, PIECE_BYTES, VolumePiece};

#[allow(clippy::cast_possible_truncation, reason = "64 KiB")]
const CLUSTER_BYTES: usize = WRITTEN_CLUSTER_BYTES as usize;

/// Bytes of a piece: as many whole clusters as a piece can hold.
pub(super) const BLOCK_BYTES: usize = PIECE_BYTES - PIECE_BYTES % CLUSTER_BYTES;

/// Encodes the clusters of a piece. Each becomes a part, which is empty for a cluster of zeros, and
/// shorter than a cluster if it is compressed. Uncompressed clusters that follow each other share a
/// part.
pub struct ClusterEncoder {
    compression: Qcow2Compression,
    /// The compressor for deflate, created when it is first needed.
    deflate: Option<Compress>,
    zstd: zstd::Encoder,
    scratch: Vec<u8>,
}

impl ClusterEncoder {
    pub(super) fn new(compression: Qcow2Compression) -> Self {
        Self { compression, deflate: None, zstd: zstd::Encoder::for_file(), scratch: Vec::new() }
    }

    pub(super) fn encode_piece(&mut self, piece: VolumePiece) -> Vec<Bytes> {
        let VolumePiece::Data(mut bytes) = piece else {
            return Vec::new();
        };
        if !bytes.len().is_multiple_of(CLUSTER_BYTES) {
            // Only the last piece of a disk ends within a cluster.
            let mut padded = bytes.to_vec();
            padded.resize(bytes.len().next_multiple_of(CLUSTER_BYTES), 0);
            bytes = padded.into();
        }
        let mut parts = Vec::new();
        // Start of the clusters that are stored and not pushed yet.
        let mut stored = 0;
        for (index, cluster) in bytes.chunks(CLUSTER_BYTES).enumerate() {
            let start = index * CLUSTER_BYTES;
            let encoded =
                if is_zero(cluster) { Some(Bytes::new()) } else { self.compress_cluster(cluster) };
            if let Some(part) = encoded {
                if stored < start {
                    parts.push(bytes.slice(stored..start));
                }
                parts.push(part);
                stored = start + CLUSTER_BYTES;
            }
        }
        if stored < bytes.len() {
            parts.push(bytes.slice(stored..));
        }
        parts
    }

    /// Compresses a cluster. `None` if that saves too little.
    fn compress_cluster(&mut self, cluster: &[u8]) -> Option<Bytes> {
        let compressed = match self.compression {
            Qcow2Compression::None => None,
            Qcow2Compression::Zlib => self.deflate_cluster(cluster),
            Qcow2Compression::Zstd => self.zstd.try_compress(cluster),
        };
        compressed.map(Bytes::copy_from_slice)
    }

    fn deflate_cluster(&mut self, cluster: &[u8]) -> Option<&[u8]> {
        let deflate = self.deflate.get_or_insert_with(|| {
            let window = Qcow2Compression::DEFLATE_WINDOW_BITS;
            Compress::new_with_window_bits(Compression::default(), false, window)
        });
        deflate.reset();
        // The call fails if the compressed data does not fit into this buffer.
        self.scratch.resize(CLUSTER_BYTES - CLUSTER_BYTES / FILE_LEAST_SAVING, 0);
        let status = deflate.compress(cluster, &mut self.scratch, FlushCompress::Finish);
        let is_complete = matches!(status, Ok(Status::StreamEnd));
        let length = usize::try_from(deflate.total_out()).ok().filter(|_| is_complete)?;
        self.scratch.get(..length)
    }
}

/// Appends a piece that was encoded with [`Encoding::Qcow2`](super::Encoding::Qcow2) to an image.
pub fn append_piece<S: ImageSink>(
    piece: EncodedPiece,
    writer: &mut Qcow2Writer,
    sink: &mut S,
) -> Result<(), S::Error> {
    if piece.kind == PieceKind::Zeros {
        writer.append_zeros(piece.length);
    }
    for part in piece.parts {
        match part.len() {
            0 => writer.append_zeros(WRITTEN_CLUSTER_BYTES),
            CLUSTER_BYTES.. => writer.append_stored(part, sink)?,
            _ => writer.append_compressed(part, sink)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use flate2::{Decompress, FlushDecompress};

    use super::*;
    use crate::encode::Encoding;

    /// Returns a cluster whose compressed form needs distances of up to `distance` bytes.
    fn cluster(distance: usize) -> Vec<u8> {
        let mut state = 1u32;
        let random: Vec<u8> = (0..distance)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            })
            .collect();
        random.iter().copied().cycle().take(CLUSTER_BYTES).collect()
    }

    fn encode(compression: Qcow2Compression, bytes: Vec<u8>) -> Vec<Bytes> {
        let piece = VolumePiece::Data(bytes.into());
        Encoding::Qcow2(compression).new_encoder().encode_piece(piece, true)
    }

    #[test]
    fn clusters_are_left_out_compressed_or_stored() {
        let (easy, hard) = (cluster(3000), cluster(CLUSTER_BYTES));
        let bytes = [&hard[..], &hard, &easy].concat();
        for compression in Qcow2Compression::ALL {
            let blocks = encode(compression, bytes.clone());
            if compression == Qcow2Compression::None {
                assert!(blocks.len() == 1 && blocks[0] == bytes);
                continue;
            }
            let [stored, compressed] = &blocks[..] else { panic!("{} blocks", blocks.len()) };
            assert!(stored[..] == bytes[..2 * CLUSTER_BYTES] && compressed.len() < 8000);
        }
        let zeros = [vec![0; CLUSTER_BYTES], hard, vec![0; 1000]].concat();
        let lengths: Vec<_> =
            encode(Qcow2Compression::Zstd, zeros).iter().map(Bytes::len).collect();
        assert_eq!(lengths, [0, CLUSTER_BYTES, 0]);
    }

    #[test]
    fn the_last_cluster_is_padded() {
        for compression in Qcow2Compression::ALL {
            let blocks = encode(compression, [cluster(CLUSTER_BYTES), vec![1; 1000]].concat());
            if compression == Qcow2Compression::None {
                assert_eq!(blocks.concat().len(), 2 * CLUSTER_BYTES);
            } else {
                assert!(blocks[0].len() == CLUSTER_BYTES && blocks[1].len() < 1000);
            }
        }
    }

    #[test]
    fn deflate_stays_within_the_window_of_qemu() {
        for distance in [3000, 5000, 20_000] {
            // Four bits of each byte are random, so all of them can be compressed.
            let bytes: Vec<u8> = cluster(distance).iter().map(|byte| byte & 15).collect();
            let blocks = encode(Qcow2Compression::Zlib, bytes.clone());
            let [compressed] = &blocks[..] else { panic!("one cluster") };
            assert!((compressed.len() < 8000) == (distance == 3000), "{}", compressed.len());
            let window = Qcow2Compression::DEFLATE_WINDOW_BITS;
            let mut inflated = vec![0; CLUSTER_BYTES];
            Decompress::new_with_window_bits(false, window)
                .decompress(compressed, &mut inflated, FlushDecompress::Finish)
                .unwrap();
            assert!(inflated == bytes);
        }
    }
}
