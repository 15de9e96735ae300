//! Compresses the disk in a source into a layer of a layout.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use codec::encode::outgoing::{EncodedStream, SendStats};
use codec::encode::{Encoding, MAX_FILE_ENCODERS};
use datapath::disk_stream::stream_disk;
use datapath::options::WriteOptions;
use stream::Error;
use stream::digest::{DigestAlgorithm, RunningDigest};
use stream::observe::ByteCount;
use stream::options::{PayloadKind, ReadOptions};
use stream::source::Source;

use super::super::failure::{ImporterCommandError, internal_error};
use super::super::open::JobContext;
use super::LayoutWriter;

/// Bytes of the layer that are hashed and written together, because a frame of zeros has only a few
/// bytes.
const WRITE_BYTES: usize = 1 << 20;

/// A layer that was written to its end.
pub(super) struct WrittenLayer {
    /// `sha256:hex` of the layer.
    pub(super) digest: String,
    /// Bytes of the layer.
    pub(super) bytes: u64,
    /// Bytes of the disk.
    pub(super) disk_bytes: u64,
}

/// Writes the disk in `source` to `layout` as one blob of zstd frames.
pub(super) fn write_layer(
    source: Box<dyn Source>,
    content: PayloadKind,
    reading: ReadOptions,
    writing: WriteOptions,
    layout: &mut dyn LayoutWriter,
    context: &JobContext,
) -> Result<WrittenLayer, ImporterCommandError> {
    let encoders = writing.workers.min(NonZeroUsize::MIN.saturating_add(MAX_FILE_ENCODERS - 1));
    let (disk_bytes, stats) = (Arc::new(OnceLock::new()), Arc::new(SendStats::<Error>::default()));
    let size = Arc::clone(&disk_bytes);
    let mut stream = EncodedStream::start(
        move |outlet| {
            let streamed = stream_disk(&*source, content, &reading, &writing, outlet)?;
            size.get_or_init(|| streamed.virtual_size);
            Ok(())
        },
        Encoding::ZstdFile,
        encoders,
        Arc::clone(&stats),
    )
    .map_err(Error::from)?;

    let mut blob = BlobOutput {
        layout,
        digest: RunningDigest::new(DigestAlgorithm::Sha256),
        bytes: 0,
        context,
    };
    let mut waiting: Vec<u8> = Vec::with_capacity(WRITE_BYTES);
    while let Some(part) =
        context.handle.block_on(std::future::poll_fn(|task| stream.poll_part(task)))
    {
        let Ok(part) = part else {
            return Err(match stats.take_failure() {
                Some(error) => error.into(),
                None => internal_error(program::panics::first_panic()),
            });
        };
        if waiting.len() + part.len() > WRITE_BYTES {
            blob.write_bytes(&waiting)?;
            waiting.clear();
        }
        waiting.extend_from_slice(&part);
    }
    blob.write_bytes(&waiting)?;
    let BlobOutput { layout, digest, bytes, .. } = blob;
    let Some(&disk_bytes) = disk_bytes.get() else {
        let what = "cannot finish the layer: the disk ended, but its size is not known";
        return Err(internal_error(what));
    };
    let digest = digest.finish_digest();
    layout.end_blob(&digest).map_err(Error::from)?;
    Ok(WrittenLayer { digest, bytes, disk_bytes })
}

struct BlobOutput<'l> {
    layout: &'l mut dyn LayoutWriter,
    digest: RunningDigest,
    bytes: u64,
    context: &'l JobContext,
}

impl BlobOutput<'_> {
    fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.digest.update(bytes);
        self.layout.append_bytes(bytes)?;
        self.bytes += bytes.len() as u64;
        self.context.observer.record_bytes(ByteCount::Target, self.bytes);
        Ok(())
    }
}
