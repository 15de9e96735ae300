//! Images with a map: their head, and the map where it can be had first.

use diskimage::{Format, HEAD_BYTES, Image, MAX_HEAD_BYTES, MapBuilder, Stream};

use crate::error::{Error, FormatError};
use crate::format::Input;
use crate::format::mapped::fetch_tables;
use crate::memory::Budget;
use crate::source::Source;
use crate::transfer::{Options, Route, RouteTaken};

/// Reads the head of an image with a map, as much of it as it needs.
pub(crate) fn open_image(format: Format, input: &mut Input, memory: &Budget) -> Result<Image, Error> {
    let mut wanted = HEAD_BYTES;
    loop {
        let head = input.peek(wanted)?;
        let opened = Image::open(format, &head);
        let Err(diskimage::Error::ShortHeader { needed, .. }) = opened else {
            return Ok(opened.map_err(FormatError::from)?);
        };
        match more(needed, &head, wanted) {
            Some(more) => {
                let mut grant = memory.grant();
                grant.resize(more as u64).map_err(FormatError::Head)?;
                input.hold_head(grant);
                wanted = more;
            }
            None => return Ok(opened.map_err(FormatError::from)?),
        }
    }
}

/// Bytes of the head to look at next, if there may be more than `wanted`, and they are worth waiting for.
fn more(needed: u64, head: &[u8], wanted: usize) -> Option<usize> {
    let needed = usize::try_from(needed).ok()?;
    (head.len() >= wanted && needed > wanted && needed <= MAX_HEAD_BYTES).then_some(needed)
}

/// A stream with the map of the image, if the source can be asked for ranges, else one that learns it as it passes.
pub(crate) fn start(
    image: Image,
    source: &dyn Source,
    input: &mut Input,
    options: &Options,
) -> Result<(Stream, RouteTaken), Error> {
    let memory = &options.limits.memory;
    input.expect_image_of(image.facts().virtual_size);
    if options.route == Route::Auto
        && let Some(length) = ranged_length(source, input)
    {
        let map = fetch_map(image, length, source, input, memory)?;
        return Ok((map.into_stream(), RouteTaken::Ranged));
    }
    let stream = Stream::one_pass(image, memory.grant()).map_err(FormatError::from)?;
    Ok((stream, RouteTaken::OnePass))
}

/// Bytes of the image, if the source can be asked for ranges of it. It is asked only here: finding out costs a request.
pub(crate) fn ranged_length(source: &dyn Source, input: &mut Input) -> Option<u64> {
    let length = source.length()?;
    input.ask_ranged(source).then_some(length)
}

/// The map of an image of `length` bytes.
pub(crate) fn fetch_map(
    image: Image,
    length: u64,
    source: &dyn Source,
    input: &mut Input,
    memory: &Budget,
) -> Result<MapBuilder, Error> {
    let mut map = MapBuilder::new(image, length, memory.grant()).map_err(FormatError::from)?;
    fetch_tables(&mut map, source, input, memory)?;
    Ok(map)
}
