//! Requests to the API server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use serde_json::Value;

use super::servers::ADMIN_TOKEN;
use crate::fail::OrFail;
use crate::https::{Connection, Request, Response};

/// An object and its content type, which tells the API server how to apply a PATCH.
pub(super) type Body<'a> = (&'static str, &'a Value);

/// A client of the API server that opens a new connection for each request.
pub(super) struct Client {
    pub(super) address: SocketAddr,
    pub(super) config: Arc<ClientConfig>,
}

impl Client {
    /// Sends a request with this token and returns the response.
    pub(super) fn ask(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<Body<'_>>,
    ) -> io::Result<Response> {
        let request =
            Request::new(method, path).header("Authorization", &format!("Bearer {token}"));
        let mut connection = Connection::open(self.address, &self.config)?;
        let Some((content_type, object)) = body else {
            return connection.exchange(&request, &[]);
        };
        let request = request.header("Content-Type", content_type);
        connection.exchange(&request, object.to_string().as_bytes())
    }

    /// Returns true if everything in the API server is ready, including the roles that it creates
    /// itself.
    pub(super) fn is_ready(&self) -> bool {
        let answer = self.ask(ADMIN_TOKEN, "GET", "/readyz", None);
        answer.is_ok_and(|answer| answer.status == 200)
    }

    /// Sends a request as administrator. Fails the test with the API server's response unless it
    /// is a success.
    #[track_caller]
    pub(super) fn succeed(&self, method: &str, path: &str, body: Option<Body<'_>>) -> Value {
        let answer = self.ask(ADMIN_TOKEN, method, path, body);
        let answer = answer.or_fail(format!("{method} {path}: no answer from the API server"));
        let succeeded = (200..300).contains(&answer.status);
        assert!(succeeded, "{method} {path}: {} {}", answer.status, answer.text());
        serde_json::from_slice(&answer.body).or_fail(format!("{method} {path}: {answer:?}"))
    }
}
