//! Requests to the API server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use serde_json::Value;

use super::servers::ADMIN_TOKEN;
use crate::fail::OrFail;
use crate::https::{Connection, Request, Response};

/// An object and the type of its JSON, which says to PATCH what to do with it.
pub(super) type Body<'a> = (&'static str, &'a Value);

/// A client of the API server, each time on a connection of its own.
pub(super) struct Client {
    pub(super) address: SocketAddr,
    pub(super) config: Arc<ClientConfig>,
}

impl Client {
    /// The answer of the API server to a client with this token.
    pub(super) fn ask(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<Body<'_>>,
    ) -> io::Result<Response> {
        let request = Request::new(method, path).header("Authorization", &format!("Bearer {token}"));
        let mut connection = Connection::open(self.address, &self.config)?;
        let Some((content_type, object)) = body else {
            return connection.exchange(&request, &[]);
        };
        let request = request.header("Content-Type", content_type);
        connection.exchange(&request, object.to_string().as_bytes())
    }

    /// True if everything in the API server is ready, the roles that it makes for itself included.
    pub(super) fn is_ready(&self) -> bool {
        let answer = self.ask(ADMIN_TOKEN, "GET", "/readyz", None);
        answer.is_ok_and(|answer| answer.status == 200)
    }

    /// Asks as administrator. Fails the test with the API server's answer unless it is a success.
    #[track_caller]
    pub(super) fn succeed(&self, method: &str, path: &str, body: Option<Body<'_>>) -> Value {
        let answer = self.ask(ADMIN_TOKEN, method, path, body);
        let answer = answer.or_fail(format!("{method} {path}: no answer from the API server"));
        let succeeded = (200..300).contains(&answer.status);
        assert!(succeeded, "{method} {path}: {} {}", answer.status, answer.text());
        serde_json::from_slice(&answer.body).or_fail(format!("{method} {path}: {answer:?}"))
    }
}
