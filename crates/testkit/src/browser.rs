//! A headless Chromium, driven through `chromedriver` by W3C WebDriver (<https://www.w3.org/TR/webdriver2/>).
//!
//! Not `fantoccini`: it is asynchronous, which its callers are not, knows nothing of the console's log, and brings an HTTP
//! client with a pool to replace the fifty lines of `command` and `read_answer`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fail::OrFail;
use crate::output::Output;
use crate::tools;
use crate::wait;

/// The words before the port in what chromedriver prints once it listens.
const LISTENING: &str = "started successfully on port ";

/// The words with which chromedriver exits when the port that it chose is taken.
const NO_PORT: &str = "port not available";

/// Starts of chromedriver. It binds a free port of IPv6 and then the same port of IPv4, and exits when another
/// program has taken that one meanwhile.
const START_ATTEMPTS: usize = 10;

/// Time that chromedriver may take to listen, and for one command; the first one starts the browser.
const PATIENCE: Duration = Duration::from_secs(60);

/// The key of an element's name in JSON (WebDriver §12, "web element identifier").
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one window and a profile of its own. It trusts every certificate, and ends when it is dropped.
pub struct Browser {
    /// Dropped after the session has been ended.
    _driver: Driver,
    address: SocketAddr,
    /// `/session/ID`
    session: String,
    profile: TempDir,
}

impl Browser {
    /// Starts the driver and the browser.
    #[track_caller]
    pub fn start() -> Self {
        let chromium = tools::find("chromium");
        let profile = tempfile::tempdir().or_fail("a folder for the browser's profile");
        let (driver, port) =
            (0..START_ATTEMPTS).find_map(|_| Driver::start()).or_fail("chromedriver found no free port");
        let mut browser = Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            _driver: driver,
            session: String::new(),
            profile,
        };
        browser.session = browser.begin_session(&chromium);
        browser
    }

    fn begin_session(&self, chromium: &Path) -> String {
        let profile = format!("--user-data-dir={}", self.profile.path().display());
        let arguments = [
            "--headless=new",
            // Tests may run as root and in containers, where neither Chromium's sandbox nor a large /dev/shm exists.
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--no-first-run",
            // Nothing but the pages under test uses the network.
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
        let begun = self.command("POST", "/session", &capabilities).or_fail("chromium");
        format!("/session/{}", text(&begun["sessionId"]))
    }

    /// Opens a page and waits until it is loaded.
    #[track_caller]
    pub fn open(&self, url: &str) {
        self.post("/url", &json!({ "url": url }));
    }

    /// The first element that the CSS selector matches.
    #[track_caller]
    pub fn find(&self, css: &str) -> Element<'_> {
        let found = self.post("/element", &json!({ "using": "css selector", "value": css }));
        Element { browser: self, path: format!("/element/{}", text(&found[ELEMENT])) }
    }

    /// The value that the body of a function returns which is called with these arguments in the page. A promise is waited for.
    #[track_caller]
    pub fn run(&self, script: &str, arguments: &[Value]) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": arguments }))
    }

    /// Looks until `probe` finds something. Fails the test with `what` and the page's text after `patience`.
    #[track_caller]
    pub fn wait_for<T>(
        &self,
        what: &str,
        patience: Duration,
        mut probe: impl FnMut(&Self) -> Option<T>,
    ) -> T {
        let page = || self.find("body").text();
        let complaint = || format!("{what}. The page says:\n{}\n{:?}", page(), self.log());
        wait::find(patience, complaint, || probe(self))
    }

    /// Waits until the text of the element has `needle` in it, and returns the text.
    #[track_caller]
    pub fn wait_for_text(&self, css: &str, needle: &str, patience: Duration) -> String {
        let element = self.find(css);
        self.wait_for(&format!("{needle:?} in {css}"), patience, |_| {
            Some(element.text()).filter(|text| text.contains(needle))
        })
    }

    /// The messages that the console has got since the last call, the browser's own complaints as well: `LEVEL message`.
    #[track_caller]
    pub fn log(&self) -> Vec<String> {
        let entries = self.post("/se/log", &json!({ "type": "browser" }));
        let entries = entries.as_array().or_fail("a list of log entries");
        let line = |entry: &Value| format!("{} {}", text(&entry["level"]), text(&entry["message"]));
        entries.iter().map(line).collect()
    }

    #[track_caller]
    fn get(&self, path: &str) -> Value {
        let path = format!("{}{path}", self.session);
        self.command("GET", &path, &Value::Null).or_fail(path)
    }

    #[track_caller]
    fn post(&self, path: &str, body: &Value) -> Value {
        let path = format!("{}{path}", self.session);
        self.command("POST", &path, body).or_fail(path)
    }

    /// Sends a command and returns the `value` of its answer (WebDriver §6, "Processing model").
    fn command(&self, method: &str, path: &str, body: &Value) -> io::Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut connection = TcpStream::connect(self.address)?;
        connection.set_read_timeout(Some(PATIENCE))?;
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

/// Status and body of an answer. The driver keeps the connection open, whatever it is asked.
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

impl Drop for Browser {
    fn drop(&mut self) {
        // Chromium has a process group of its own: the driver ends it with the session.
        self.command("DELETE", &self.session, &Value::Null).ok();
    }
}

/// A running chromedriver with a process group of its own, which ends when this is dropped.
struct Driver(Child);

impl Driver {
    /// Returns a chromedriver that listens, and its port; `None` if it found no free port.
    #[track_caller]
    fn start() -> Option<(Self, u16)> {
        let process = Command::new(tools::find("chromedriver"))
            .arg("--port=0")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut driver = Self(process.or_fail("chromedriver"));
        let printed = driver.0.stdout.take().map(Output::collect);
        let printed = printed.or_fail("a piped standard output");
        let Some(line) = printed.wait_for_or_end(LISTENING, PATIENCE) else {
            let said = printed.text();
            assert!(said.contains(NO_PORT), "chromedriver has ended: {said}");
            return None;
        };
        let port = line.split(LISTENING).nth(1).map(|rest| rest.trim_end_matches('.'));
        let port = port.and_then(|port| port.parse().ok());
        Some((driver, port.or_fail(format!("a port in {line:?}"))))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        rustix::process::kill_process_group(Pid::from_child(&self.0), Signal::KILL).ok();
        self.0.wait().ok();
    }
}

/// An element of the page that is open.
pub struct Element<'b> {
    browser: &'b Browser,
    path: String,
}

impl Element<'_> {
    /// Clicks it.
    #[track_caller]
    pub fn click(&self) {
        self.browser.post(&format!("{}/click", self.path), &json!({}));
    }

    /// Types into it, or chooses the file of this path.
    #[track_caller]
    pub fn send_keys(&self, keys: &str) {
        self.browser.post(&format!("{}/value", self.path), &json!({ "text": keys }));
    }

    /// Empties a field.
    #[track_caller]
    pub fn clear(&self) {
        self.browser.post(&format!("{}/clear", self.path), &json!({}));
    }

    /// Its text as it is seen: nothing while it is hidden.
    #[track_caller]
    pub fn text(&self) -> String {
        text(&self.browser.get(&format!("{}/text", self.path)))
    }

    /// A property of its object in the page.
    #[track_caller]
    pub fn property(&self, name: &str) -> Value {
        self.browser.get(&format!("{}/property/{name}", self.path))
    }

    /// An attribute of its tag.
    #[track_caller]
    pub fn attribute(&self, name: &str) -> Option<String> {
        let value = self.browser.get(&format!("{}/attribute/{name}", self.path));
        value.as_str().map(str::to_owned)
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_seen_and_touched() {
        let browser = Browser::start();
        browser.open(
            "data:text/html,<input id=in><input id=file type=file><p id=out title=words></p><script>\
             document.getElementById('in').oninput = e => setTimeout(() => {\
               document.getElementById('out').textContent = e.target.value; console.log('typed') }, 50)</script>",
        );
        let field = browser.find("#in");
        field.send_keys("x");
        let patience = Duration::from_secs(10);
        assert_eq!(browser.wait_for_text("#out", "x", patience), "x");
        assert!(browser.log().iter().any(|line| line.contains("typed")));
        field.clear();
        assert_eq!(field.property("value"), "");
        assert_eq!(browser.find("#out").attribute("title").as_deref(), Some("words"));
        let file = tempfile::NamedTempFile::new().unwrap();
        browser.find("#file").send_keys(&file.path().to_string_lossy());
        let name =
            browser.run("return document.querySelector(arguments[0]).files[0].name", &[json!("#file")]);
        assert_eq!(name, file.path().file_name().unwrap().to_string_lossy().as_ref());
        assert_eq!(browser.run("return Promise.resolve(6 * 7)", &[]), 42);
    }
}
