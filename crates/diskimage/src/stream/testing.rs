//! Runs an image by either route into any sink.

use bytes::Bytes;

use crate::{
    Error, GuestSink, Host, Image, ImageMemoryLimit, ImageStream, MapBuilder, TableConsumer,
};

/// Passes an image once, in chunks of `chunk` bytes.
pub(crate) fn one_pass<S: GuestSink<Error = Error>>(
    opened: Image,
    image: &[u8],
    chunk: usize,
    mut sink: S,
) -> Result<S, Error> {
    let mut stream = ImageStream::one_pass(opened, ImageMemoryLimit(u64::MAX))?;
    for piece in image.chunks(chunk.max(1)) {
        stream.push(Bytes::copy_from_slice(piece), &mut sink)?;
    }
    stream.finish(&mut sink)?;
    Ok(sink)
}

/// Reads the map of an image first, and then passes only the bytes that it needs.
pub(crate) fn ranged<S: GuestSink<Error = Error>>(
    opened: Image,
    image: &[u8],
    chunk: usize,
    mut sink: S,
) -> Result<S, Error> {
    let at = |offset: Host| usize::try_from(offset.0).unwrap();
    let mut map = MapBuilder::new(opened, image.len() as u64, ImageMemoryLimit(u64::MAX))?;
    loop {
        let tables = map.next_tables()?;
        if tables.is_empty() {
            break;
        }
        for table in tables {
            map.add_table(
                &table,
                &image[at(table.host_range().start)..at(table.host_range().end)],
            )?;
        }
    }
    let mut stream = map.into_stream();
    while let Some(needed) = stream.next_needed() {
        let start = at(needed);
        if start >= image.len() {
            break;
        }
        stream.skip_to(needed);
        let end = (start + chunk.max(1)).min(image.len());
        stream.push(Bytes::copy_from_slice(&image[start..end]), &mut sink)?;
    }
    stream.finish(&mut sink)?;
    Ok(sink)
}
