//! The image server's side: serves ranges and extents of the image of a ticket as ovirt-imageio
//! 2.5 does, with faults.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::State;
use super::script::{Extents, Fault};
use crate::wire::{self, Request, Stream};

/// Bytes of a body that are written at a time. They are few, so that the rate of a slow server is
/// even.
const WRITE_BYTES: usize = 16 * 1024;

/// Granularity of extents.
const GRAIN_BYTES: usize = 64 * 1024;

/// The head and body of a response.
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl Answer {
    fn new(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let headers = vec![
            ("Content-Type".to_owned(), content_type.to_owned()),
            ("Content-Length".to_owned(), body.len().to_string()),
        ];
        Self { status, headers, body }
    }

    fn refusal(status: u16, text: impl Into<String>) -> Self {
        Self::new(status, "text/plain; charset=UTF-8", text.into())
    }

    fn json(text: impl Into<Bytes>) -> Self {
        Self::new(200, "application/json", text)
    }
}

/// Responds to one request. Returns false if the connection ends with it.
pub(super) async fn serve(
    state: &Arc<State>,
    stream: &mut dyn Stream,
    request: &Request,
) -> io::Result<bool> {
    let path = request.path().strip_prefix("/images/").unwrap_or_default();
    let (ticket, rest) = path.split_once('/').unwrap_or((path, ""));
    let Some(image) = open(state, ticket) else {
        let refusal =
            format!("You are not allowed to access this resource: Ticket {ticket} expired\n");
        return write(state, stream, Answer::refusal(403, refusal), None).await;
    };
    match (request.method.as_str(), rest) {
        ("OPTIONS", "") => write(state, stream, options(&state.script.extents), None).await,
        ("GET", "extents") => {
            write(state, stream, extents(&state.script.extents, &image), None).await
        }
        ("GET", "") => data(state, stream, request, ticket, &image).await,
        _ => write(state, stream, Answer::refusal(405, "Method not allowed\n"), None).await,
    }
}

/// Returns the image of a valid ticket.
fn open(state: &State, ticket: &str) -> Option<Bytes> {
    let mut log = state.log();
    let transfer = log.transfers.iter_mut().find(|transfer| transfer.id == ticket)?;
    transfer.is_open(&state.script).then(|| transfer.bytes().clone())
}

fn options(extents: &Extents) -> Answer {
    let features = match extents {
        Extents::Unsupported => json!(["checksum"]),
        Extents::Served | Extents::Said(_) => json!(["checksum", "extents"]),
    };
    Answer::json(json!({"features": features, "max_readers": 8, "max_writers": 1}).to_string())
}

fn extents(extents: &Extents, image: &[u8]) -> Answer {
    match extents {
        Extents::Served => Answer::json(true_extents(image)),
        Extents::Said(text) => Answer::json(text.clone()),
        Extents::Unsupported => Answer::refusal(404, "No such resource\n"),
    }
}

/// Lists runs of grains that are all zero or all not. Every other zero run is reported as
/// allocated.
fn true_extents(image: &[u8]) -> String {
    let mut runs: Vec<(Range<usize>, bool)> = Vec::new();
    for (number, grain) in image.chunks(GRAIN_BYTES).enumerate() {
        let start = number * GRAIN_BYTES;
        let zero = grain.iter().all(|byte| *byte == 0);
        match runs.last_mut() {
            Some((run, same)) if *same == zero => run.end = start + grain.len(),
            _ => runs.push((start..start + grain.len(), zero)),
        }
    }
    let list = runs.iter().enumerate().map(|(number, (run, zero))| {
        json!({"start": run.start, "length": run.len(), "zero": zero, "hole": *zero && number % 4 < 2})
    });
    json!(list.collect::<Vec<_>>()).to_string()
}

/// Sends bytes of the image, with the fault that this GET gets.
async fn data(
    state: &Arc<State>,
    stream: &mut dyn Stream,
    request: &Request,
    ticket: &str,
    image: &Bytes,
) -> io::Result<bool> {
    let fault = state.next_fault(request.header("authorization").is_some());
    let total = image.len();
    let range = match request.range(total as u64) {
        None => 0..total,
        Some(range) => to_usize(range.start)..to_usize(range.end),
    };
    if range.start >= range.end && total > 0 {
        let text = format!("Requested range {range:?} out of allowed range 0..{total}\n");
        return write(state, stream, Answer::refusal(416, text), None).await;
    }
    let limit = match fault {
        Fault::Refuse => return Ok(false),
        Fault::Silence => return std::future::pending().await,
        Fault::Status(status, retry_after) => {
            let mut answer = Answer::refusal(status, "Try again\n");
            answer.headers.extend(retry_after.map(|value| ("Retry-After".to_owned(), value)));
            return write(state, stream, answer, None).await;
        }
        Fault::CutAt(offset) | Fault::ResetAt(offset) | Fault::StallAt(offset) => {
            to_usize(offset).saturating_sub(range.start)
        }
        Fault::None => usize::MAX,
    };
    let mut answer = Answer::new(200, "application/octet-stream", image.slice(range.clone()));
    if request.header("range").is_some() {
        answer.status = 206;
        let value = format!("bytes {}-{}/{total}", range.start, range.end - 1);
        answer.headers.push(("Content-Range".to_owned(), value));
    }
    let cut = limit < answer.body.len();
    write(state, stream, answer, Some((ticket, limit))).await?;
    match fault {
        Fault::StallAt(_) if cut => std::future::pending().await,
        Fault::ResetAt(_) if cut => stream.tcp().set_zero_linger().map(|()| false),
        _ => Ok(!cut),
    }
}

/// Writes the response. If it contains the image of a `ticket`, at most this number of bytes is
/// sent.
async fn write(
    state: &State,
    stream: &mut dyn Stream,
    answer: Answer,
    image: Option<(&str, usize)>,
) -> io::Result<bool> {
    wire::write_head(stream, answer.status, &answer.headers).await?;
    let Some((ticket, limit)) = image else {
        stream.write_all(&answer.body).await?;
        stream.flush().await?;
        return Ok(true);
    };
    for piece in answer.body[..limit.min(answer.body.len())].chunks(WRITE_BYTES) {
        stream.write_all(piece).await?;
        stream.flush().await?;
        state.sent(ticket, piece.len());
        if let Some(rate) = state.script.rate {
            tokio::time::sleep(Duration::from_secs_f64(piece.len() as f64 / rate.max(1) as f64))
                .await;
        }
    }
    Ok(true)
}

fn to_usize(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}
