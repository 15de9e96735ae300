//! Parses any headers, as hyper reads them: checksums of uploads, headers of resumable uploads,
//! `Range`, `Content-Range`, and challenges of registries. Accepted values are stated in the
//! header and lie within the object, and errors are printable messages.

use http::{HeaderMap, header};
use stream::digest::DigestAlgorithm;
use stream::marks::{MAX_MARKS, parse_mark};
use uploadserver::checksum::{AnnouncedChecksum, promised, promised_of_parts};
use uploadserver::tus;

use containerimage_server::range::RequestedRange;
use fetch::http::ContentRange;
use oci::challenge::{AuthChallenge, choose_challenge};

use crate::{Pieces, Script, assert_sentence, serve};

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn check_promises(headers: &HeaderMap) {
    for promise in [promised(headers, false), promised(headers, true), promised_of_parts(headers)] {
        match promise {
            // CRC-64/NVME only detects damage, so users cannot request it elsewhere and it does
            // not parse.
            Ok(AnnouncedChecksum::Known(checksum))
                if checksum.algorithm() != DigestAlgorithm::Crc64Nvme =>
            {
                assert_eq!(checksum.to_string().parse(), Ok(checksum));
            }
            Ok(_) => {}
            Err(error) => assert_sentence(&error.to_string()),
        }
    }
}

fn check_resumable(headers: &HeaderMap) {
    let created = tus::length_at_creation(headers);
    let begun = created.as_ref().map(|length| (0, *length)).map_err(ToString::to_string);
    let continued = tus::offset_and_length(headers).map_err(|error| error.to_string());
    let stated = |name: &str| -> Option<u64> { text(headers, name)?.parse().ok() };
    for (asked, offset) in [(begun, Some(0)), (continued, stated("upload-offset"))] {
        match asked {
            Ok((at, total)) => {
                assert_eq!(stated("upload-length"), total, "{headers:?}");
                assert_eq!(offset, Some(at), "{headers:?}");
            }
            Err(sentence) => assert_sentence(&sentence),
        }
    }
    let Ok(length) = created else { return };
    match tus::marks(headers, length) {
        Ok(marks) => {
            assert!(
                marks.len() <= MAX_MARKS
                    && marks.is_sorted_by(|one, next| one.end_offset() < next.end_offset())
            );
            assert!(marks.iter().all(|mark| parse_mark(&mark.to_string()) == Ok(*mark)));
        }
        Err(error) => assert_sentence(&error.to_string()),
    }
}

/// Returns the range to send of a file of `length` bytes, or `None` if it cannot be satisfied.
fn wanted(header: &str, length: u64) -> Option<std::ops::Range<u64>> {
    match RequestedRange::from_header(header, length) {
        RequestedRange::Whole => Some(0..length),
        RequestedRange::Part(range) => Some(range),
        RequestedRange::Unsatisfiable => None,
    }
}

fn check_ranges(headers: &HeaderMap) {
    if let Some(asked) = text(headers, header::RANGE.as_str()) {
        for length in [0, 1, 100, u64::MAX] {
            let range = wanted(asked, length);
            let is_within =
                |range: &std::ops::Range<u64>| range.start <= range.end && range.end <= length;
            assert!(range.as_ref().is_none_or(is_within), "{asked:?} of {length}: {range:?}");
            assert!(
                range.is_none_or(|range| !range.is_empty() || length == 0),
                "{asked:?} of {length}"
            );
        }
    }
    if let Some(ContentRange { part, total }) = ContentRange::from_headers(headers) {
        let stated = text(headers, header::CONTENT_RANGE.as_str()).expect("a header that was read");
        let of = total.map_or("*".to_owned(), |total| total.to_string());
        let again = match part {
            Some(part) => {
                assert!(
                    !part.is_empty() && total.is_none_or(|total| part.end <= total),
                    "{stated:?}"
                );
                format!("bytes {}-{}/{of}", part.start, part.end - 1)
            }
            None => format!("bytes */{of}"),
        };
        let significant = |text: &str| -> Vec<String> {
            text.trim()
                .split_inclusive(|char: char| !char.is_ascii_digit())
                .map(|number| number.trim_start_matches('0').to_owned())
                .collect()
        };
        assert_eq!(significant(&again), significant(stated), "{stated:?}");
    }
}

pub fn run(data: &[u8]) {
    let Some((sizes, lines)) = data.split_first_chunk::<{ Pieces::CUTS }>() else {
        return;
    };
    let head = [b"POST / HTTP/1.1\r\n", lines, b"\r\n\r\n"].concat();
    serve(Script::new(Pieces::of(*sizes, head)), async |request| {
        check_promises(request.headers());
        check_resumable(request.headers());
        check_ranges(request.headers());
        if let Some(AuthChallenge::Bearer { realm, .. }) = choose_challenge(request.headers()) {
            assert!(realm.len() <= lines.len());
        }
    });
}
