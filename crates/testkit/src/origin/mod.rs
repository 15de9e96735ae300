//! An HTTP(S) origin that serves one object, with faults that a test chooses.

mod answer;
mod script;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use rustls::ServerConfig;

use self::answer::Answer;
pub use self::script::{Framing, NOW, Object, Ranges, Script};
use crate::serving::{After, Exchange, Handler, HttpServer, Pace, lock};
pub use crate::serving::{Fault, Recorded};
use crate::wire::{self, Request};

/// A running server on a free loopback port. It stops when dropped.
pub type Origin = HttpServer<ScriptedObject>;

/// The object of an [`Origin`], and how far its script has come.
pub struct ScriptedObject {
    script: Script,
    /// The rate that all connections share.
    pace: Pace,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Requests by path.
    paths: HashMap<String, usize>,
    answered_gets: usize,
}

impl Origin {
    /// Serves `script` over plain HTTP.
    pub fn start(script: Script) -> io::Result<Self> {
        Self::serve(ScriptedObject::new(script), None)
    }

    /// Serves `script` over HTTPS (see [`crate::certs`]).
    pub fn start_tls(script: Script, tls: Arc<ServerConfig>) -> io::Result<Self> {
        Self::serve(ScriptedObject::new(script), Some(tls))
    }
}

impl ScriptedObject {
    fn new(script: Script) -> Self {
        Self { pace: Pace::new(script.rate), script, seen: Mutex::default() }
    }

    /// Chooses the response and the fault.
    fn decide(&self, request: &Request) -> (Answer, Fault) {
        let mut seen = lock(&self.seen);
        let before = seen.paths.entry(request.path().to_owned()).or_default();
        *before += 1;
        if let Some(answer) = answer::refusal(&self.script, request, *before - 1) {
            return (answer, Fault::None);
        }
        let nth = seen.answered_gets;
        let is_bounded = request.header("range").is_some_and(|range| !range.ends_with('-'));
        let mut fault = Fault::None;
        if !(self.script.spares_bounded && is_bounded) {
            seen.answered_gets += usize::from(request.method == "GET");
            fault = self.script.faults.get(nth).cloned().unwrap_or(fault);
        }
        (answer::answer(&self.script, request, nth, &fault), fault)
    }
}

impl Handler for ScriptedObject {
    async fn handle(&self, exchange: &mut Exchange<'_>) -> io::Result<After> {
        tokio::time::sleep(self.script.latency).await;
        let (answer, fault) = self.decide(&exchange.request);
        match fault {
            Fault::Refuse => return Ok(After::Close),
            Fault::Silence => std::future::pending().await,
            _ => {}
        }
        exchange.write_head(answer.status, &answer.headers).await?;
        if exchange.request.method == "HEAD" {
            return Ok(After::KeepOpen);
        }
        let own = Pace::new(self.script.rate);
        let pace = if self.script.shared_rate { &self.pace } else { &own };
        let body = (&answer.body[..], answer.offset);
        if let Some(after) = exchange.write_body(body, answer.chunked, &fault, pace).await? {
            return Ok(after);
        }
        if answer.chunked && !self.script.cut_end_mark {
            wire::write_last_chunk(exchange.client).await?;
        }
        let is_closed = answer.close || answer.chunked && self.script.cut_end_mark;
        Ok(if is_closed { After::Close } else { After::KeepOpen })
    }
}
