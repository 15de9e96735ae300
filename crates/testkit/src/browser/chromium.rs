//! A headless Chromium, driven by WebDriver through `chromedriver`
//! (<https://www.w3.org/TR/webdriver2/>).
//!
//! The crate `fantoccini` is not used: it is asynchronous, unlike its callers here, cannot read
//! the console's log, and would bring an HTTP client with a pool to replace the fifty lines of
//! `request` and `read_answer`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{BrowserProcess, BrowserSession, text};
use crate::fail::OrFail;
use crate::output::Output;
use crate::{tools, wait};

/// The text before the port in the line that chromedriver prints once it listens.
const LISTENING: &str = "started successfully on port ";

/// The message with which chromedriver exits if its chosen port is taken.
const NO_PORT: &str = "port not available";

/// How often chromedriver is started. It binds a free IPv6 port and then the same IPv4 port, and
/// exits if another program has taken that one in the meantime.
const START_ATTEMPTS: usize = 10;

/// The WebDriver commands in use, and their requests below `/session/ID`.
const REQUESTS: [(&str, &str, &str); 9] = [
    ("Navigate", "POST", "/url"),
    ("FindElement", "POST", "/element"),
    ("ExecuteScript", "POST", "/execute/sync"),
    ("ElementClick", "POST", "/element/{id}/click"),
    ("ElementSendKeys", "POST", "/element/{id}/value"),
    ("ElementClear", "POST", "/element/{id}/clear"),
    ("GetElementText", "GET", "/element/{id}/text"),
    ("GetElementProperty", "GET", "/element/{id}/property/{name}"),
    ("GetElementAttribute", "GET", "/element/{id}/attribute/{name}"),
];

/// A session of chromedriver.
pub(super) struct ChromiumSession {
    /// Dropped after the session has ended.
    _driver: BrowserProcess,
    address: SocketAddr,
    /// `/session/ID`
    session: String,
    profile: TempDir,
}

impl ChromiumSession {
    /// Starts the driver and the browser.
    #[track_caller]
    pub(super) fn start() -> Self {
        let chromium = tools::find("chromium");
        let profile = tempfile::tempdir().or_fail("a folder for the browser's profile");
        let (driver, port) = (0..START_ATTEMPTS)
            .find_map(|_| start_driver())
            .or_fail("chromedriver found no free port");
        let mut browser = Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            _driver: driver,
            session: String::new(),
            profile,
        };
        browser.session = browser.begin(&chromium);
        browser
    }

    fn begin(&self, chromium: &Path) -> String {
        let profile = format!("--user-data-dir={}", self.profile.path().display());
        let arguments = [
            "--headless=new",
            // Tests may run as root and in containers, without Chromium's sandbox or a large
            // /dev/shm.
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--no-first-run",
            // Only the pages under test may use the network.
            "--disable-background-networking",
            "--disable-component-update",
            "--no-proxy-server",
            &profile,
        ];
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "acceptInsecureCerts": true,
            "goog:chromeOptions": { "binary": chromium, "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        }}});
        let begun = self.request("POST", "/session", &capabilities).or_fail("chromium");
        format!("/session/{}", text(&begun["sessionId"]))
    }

    /// Sends a request and returns the `value` of the response (WebDriver §6, "Processing model").
    fn request(&self, method: &str, path: &str, body: &Value) -> io::Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut connection = TcpStream::connect(self.address)?;
        connection.set_read_timeout(Some(wait::PATIENCE))?;
        write!(
            connection,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             \r\n{body}",
            self.address,
            body.len()
        )?;
        let (status, answer) = read_answer(BufReader::new(connection))?;
        let mut answer: Value = serde_json::from_str(&answer)?;
        if status == 200 {
            Ok(answer["value"].take())
        } else {
            Err(io::Error::other(text(&answer["value"]["message"])))
        }
    }
}

impl BrowserSession for ChromiumSession {
    fn command(&self, name: &str, parameters: &Value) -> io::Result<Value> {
        let (_, method, path) =
            REQUESTS.iter().find(|(known, ..)| *known == name).or_fail("a known command");
        let mut path = format!("{}{path}", self.session);
        for key in ["id", "name"] {
            path = path.replace(&format!("{{{key}}}"), &text(&parameters[key]));
        }
        self.request(method, &path, if *method == "GET" { &Value::Null } else { parameters })
    }

    fn log(&self) -> io::Result<Vec<String>> {
        let entries = self.request(
            "POST",
            &format!("{}/se/log", self.session),
            &json!({ "type": "browser" }),
        )?;
        let entries = entries.as_array().or_fail("a list of log entries");
        let line = |entry: &Value| format!("{} {}", text(&entry["level"]), text(&entry["message"]));
        Ok(entries.iter().map(line).collect())
    }
}

impl Drop for ChromiumSession {
    fn drop(&mut self) {
        // Chromium runs in a process group of its own; chromedriver kills it when the session
        // ends.
        self.request("DELETE", &self.session, &Value::Null).ok();
    }
}

/// Reads the status and the body of a response. The driver keeps the connection open even if asked
/// not to, so the body is read by its length.
fn read_answer(mut connection: impl BufRead) -> io::Result<(u16, String)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if connection.read_line(&mut head)? == 0 {
            return Err(io::Error::other(format!("the driver said no more than {head:?}")));
        }
    }
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, length)| length.trim().parse().ok());
    let (Some(status), Some(length)) = (status, length) else {
        return Err(io::Error::other(format!("neither status nor length in {head:?}")));
    };
    let mut body = String::new();
    connection.take(length).read_to_string(&mut body)?;
    Ok((status, body))
}

/// Starts chromedriver and returns it with its port, or `None` if it found no free port.
#[track_caller]
fn start_driver() -> Option<(BrowserProcess, u16)> {
    let process = Command::new(tools::find("chromedriver"))
        .arg("--port=0")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut driver = BrowserProcess(process.or_fail("chromedriver"));
    let printed = driver.0.stdout.take().map(Output::collect);
    let printed = printed.or_fail("a piped standard output");
    let Some(line) = printed.wait_for_or_end(LISTENING) else {
        let said = printed.text();
        assert!(said.contains(NO_PORT), "chromedriver has ended: {said}");
        return None;
    };
    let port = line.split(LISTENING).nth(1).map(|rest| rest.trim_end_matches('.'));
    let port = port.and_then(|port| port.parse().ok());
    Some((driver, port.or_fail(format!("a port in {line:?}"))))
}
