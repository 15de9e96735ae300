//! Requests and responses.

use std::fmt;
use std::io;

/// The head of a request.
#[derive(Debug, Clone)]
pub struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    /// A request whose only header is `Host`.
    pub fn new(method: &str, path: &str) -> Self {
        Self { method: method.to_owned(), path: path.to_owned(), headers: Vec::new() }
    }

    /// A POST request.
    pub fn post(path: &str) -> Self {
        Self::new("POST", path)
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// States the length of the body, whatever is actually sent.
    pub fn length(self, bytes: usize) -> Self {
        self.header("Content-Length", &bytes.to_string())
    }

    /// Announces a chunked body.
    pub fn chunked(self) -> Self {
        self.header("Transfer-Encoding", "chunked")
    }

    /// The head in its transmitted form.
    pub fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nHost: localhost\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        head.into_bytes()
    }

    pub(super) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    pub(super) fn is_post(&self) -> bool {
        self.method == "POST"
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name))
    }
}

/// A response.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Headers in order, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body without its framing.
    pub body: Vec<u8>,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {:?}", self.status, self.headers, self.text())
    }
}

impl Response {
    /// Parses a head. The body is left empty.
    pub(super) fn parse(head: &str) -> io::Result<Self> {
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let status = status.and_then(|status| status.parse().ok());
        Ok(Self {
            status: status.ok_or_else(|| io::Error::other(format!("not HTTP: {head:?}")))?,
            headers: lines
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                .collect(),
            body: Vec::new(),
        })
    }

    /// The value of the first header with this (lower-case) name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Fails the test unless status and body equal these.
    #[track_caller]
    pub fn assert(&self, status: u16, body: &str) {
        assert_eq!((self.status, self.text().as_str()), (status, body));
    }

    /// Fails the test unless an upload server reports a successful upload.
    #[track_caller]
    pub fn assert_uploaded(&self) {
        let is_line = self.text().starts_with("received ") && self.text().ends_with('\n');
        assert!(self.status == 200 && is_line, "{self:?}");
    }

    /// Fails the test unless the response has this status and a single line that contains `words`.
    #[track_caller]
    pub fn assert_refused(&self, status: u16, words: &str) {
        let text = self.text();
        assert_eq!(self.status, status, "{text}");
        assert!(text.contains(words) && text.lines().count() == 1, "{words:?} in {text:?}");
    }
}
