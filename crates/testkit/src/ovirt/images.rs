//! The image server's side: serves ranges and extents of the image of a ticket as ovirt-imageio
//! 2.5 does, with faults.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use super::State;
use super::script::{Extents, Fault};
use crate::serving::{After, Exchange, Handler, Pace};
use crate::wire;

/// Granularity of extents.
const GRAIN_BYTES: usize = 64 * 1024;

/// The image server of an engine.
pub(super) struct Images(pub(super) Arc<State>);

impl Handler for Images {
    async fn handle(&self, exchange: &mut Exchange<'_>) -> io::Result<After> {
        let request = &exchange.request;
        let path = request.path().strip_prefix("/images/").unwrap_or_default().to_owned();
        let (ticket, rest) = path.split_once('/').unwrap_or((&path, ""));
        let Some(image) = self.open(ticket) else {
            let text =
                format!("You are not allowed to access this resource: Ticket {ticket} expired\n");
            return refuse(exchange, 403, &text).await;
        };
        let extents = &self.0.script.extents;
        match (request.method.as_str(), rest) {
            ("OPTIONS", "") => respond_json(exchange, options(extents).as_bytes()).await,
            ("GET", "extents") => match extents {
                Extents::Served => respond_json(exchange, true_extents(&image).as_bytes()).await,
                Extents::Said(text) => respond_json(exchange, text).await,
                Extents::Unsupported => refuse(exchange, 404, "No such resource\n").await,
            },
            ("GET", "") => self.send(exchange, &image).await,
            _ => refuse(exchange, 405, "Method not allowed\n").await,
        }
    }
}

impl Images {
    /// Returns the image of a valid ticket.
    fn open(&self, ticket: &str) -> Option<Bytes> {
        let log = self.0.log();
        let transfer = log.transfers.iter().find(|transfer| transfer.id == ticket)?;
        (transfer.phase == "transferring").then(|| transfer.bytes().clone())
    }

    /// Sends bytes of the image, with the fault that this GET gets.
    async fn send(&self, exchange: &mut Exchange<'_>, image: &Bytes) -> io::Result<After> {
        let fault = self.0.next_fault();
        let wanted = exchange.request.range(image.len() as u64);
        let (status, range, content_range) = wire::partial(wanted, image.len());
        match &fault {
            _ if status == 416 => return refuse(exchange, 416, "The range is not allowed\n").await,
            Fault::Refuse => return Ok(After::Close),
            Fault::Silence => std::future::pending().await,
            Fault::Status(status, retry_after) => {
                let mut headers = vec![content_type("text/plain; charset=UTF-8")];
                headers.extend(retry_after.clone().map(|value| ("Retry-After".to_owned(), value)));
                return exchange.respond(*status, headers, b"Try again\n").await;
            }
            _ => {}
        }
        let mut headers = vec![content_type("application/octet-stream")];
        headers.push(("Content-Length".to_owned(), range.len().to_string()));
        headers.extend(content_range);
        exchange.write_head(status, &headers).await?;
        let body = (&image[range.clone()], range.start as u64);
        let pace = Pace::new(self.0.script.rate);
        let ended = exchange.write_body(body, false, &fault, &pace).await?;
        Ok(ended.unwrap_or(After::KeepOpen))
    }
}

fn content_type(kind: &str) -> (String, String) {
    ("Content-Type".to_owned(), kind.to_owned())
}

async fn refuse(exchange: &mut Exchange<'_>, status: u16, text: &str) -> io::Result<After> {
    let headers = vec![content_type("text/plain; charset=UTF-8")];
    exchange.respond(status, headers, text.as_bytes()).await
}

async fn respond_json(exchange: &mut Exchange<'_>, text: &[u8]) -> io::Result<After> {
    exchange.respond(200, vec![content_type("application/json")], text).await
}

fn options(extents: &Extents) -> String {
    let features = match extents {
        Extents::Unsupported => json!(["checksum"]),
        Extents::Served | Extents::Said(_) => json!(["checksum", "extents"]),
    };
    json!({"features": features, "max_readers": 8, "max_writers": 1}).to_string()
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
