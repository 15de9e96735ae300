//! Headless browsers, driven by the commands of W3C WebDriver
//! (<https://www.w3.org/TR/webdriver2/>).

use std::io;
use std::process::Child;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use self::chromium::ChromiumSession;
use self::firefox::FirefoxSession;
use crate::fail::OrFail;
use crate::wait;

mod chromium;
mod firefox;

/// The key under which WebDriver returns an element's identifier (WebDriver §12, "web element
/// identifier").
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// The browsers in which the upload page is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrowserKind {
    /// Chromium, through chromedriver.
    Chromium,
    /// Firefox, through Marionette.
    Firefox,
}

/// A browser with one window and a profile of its own. It trusts every certificate and is killed
/// when dropped.
pub struct Browser {
    session: Box<dyn BrowserSession>,
}

/// A session with a running browser.
trait BrowserSession {
    /// Sends the WebDriver command `name`, spelled without spaces, and returns its result. The
    /// parameter `id` names an element.
    fn command(&self, name: &str, parameters: &Value) -> io::Result<Value>;

    /// The log messages since the last call.
    fn log(&self) -> io::Result<Vec<String>>;
}

impl Browser {
    /// Starts a browser.
    #[track_caller]
    pub fn start(kind: BrowserKind) -> Self {
        let session: Box<dyn BrowserSession> = match kind {
            BrowserKind::Chromium => Box::new(ChromiumSession::start()),
            BrowserKind::Firefox => Box::new(FirefoxSession::start()),
        };
        Self { session }
    }

    /// Opens a page and waits until it is loaded.
    #[track_caller]
    pub fn open(&self, url: &str) {
        self.command("Navigate", &json!({ "url": url }));
    }

    /// Returns the first element that the CSS selector matches.
    #[track_caller]
    pub fn find(&self, css: &str) -> Element<'_> {
        let found = self.command("FindElement", &json!({ "using": "css selector", "value": css }));
        Element { browser: self, id: text(&found[ELEMENT]) }
    }

    /// Runs `script` as the body of a function in the page and returns its result. A returned
    /// promise is awaited.
    #[track_caller]
    pub fn run(&self, script: &str, arguments: &[Value]) -> Value {
        self.command("ExecuteScript", &json!({ "script": script, "args": arguments }))
    }

    /// Polls `probe` until it returns something. After `patience` the test fails with `what` and
    /// the page's text.
    #[track_caller]
    pub fn wait_for<T>(&self, what: &str, mut probe: impl FnMut(&Self) -> Option<T>) -> T {
        let page = || self.find("body").text();
        let complaint = || format!("{what}. The page says:\n{}\n{:?}", page(), self.log());
        wait::find(complaint, || probe(self))
    }

    /// Waits until the text of the element contains `needle`, and returns the text.
    #[track_caller]
    pub fn wait_for_text(&self, css: &str, needle: &str) -> String {
        let element = self.find(css);
        self.wait_for(&format!("{needle:?} in {css}"), |_| {
            Some(element.text()).filter(|text| text.contains(needle))
        })
    }

    /// The browser's messages about pages since the last call: script errors and policy
    /// violations. Chromium also reports missing files and the scripts' own messages.
    #[track_caller]
    pub fn log(&self) -> Vec<String> {
        self.session.log().or_fail("the log")
    }

    #[track_caller]
    fn command(&self, name: &str, parameters: &Value) -> Value {
        self.session.command(name, parameters).or_fail(name)
    }
}

/// A browser process in its own process group, which is killed when this is dropped.
struct BrowserProcess(Child);

impl Drop for BrowserProcess {
    fn drop(&mut self) {
        rustix::process::kill_process_group(Pid::from_child(&self.0), Signal::KILL).ok();
        self.0.wait().ok();
    }
}

/// An element of the open page.
pub struct Element<'b> {
    browser: &'b Browser,
    id: String,
}

impl Element<'_> {
    /// Clicks the element.
    #[track_caller]
    pub fn click(&self) {
        self.command("ElementClick", &json!({ "id": self.id }));
    }

    /// Types into the element, or selects the file with this path in a file input.
    #[track_caller]
    pub fn send_keys(&self, keys: &str) {
        self.command("ElementSendKeys", &json!({ "id": self.id, "text": keys }));
    }

    /// Empties an input field.
    #[track_caller]
    pub fn clear(&self) {
        self.command("ElementClear", &json!({ "id": self.id }));
    }

    /// The visible text of the element; empty while it is hidden.
    #[track_caller]
    pub fn text(&self) -> String {
        text(&self.command("GetElementText", &json!({ "id": self.id })))
    }

    /// A property of the element's DOM object.
    #[track_caller]
    pub fn property(&self, name: &str) -> Value {
        self.command("GetElementProperty", &json!({ "id": self.id, "name": name }))
    }

    /// An attribute of the element.
    #[track_caller]
    pub fn attribute(&self, name: &str) -> Option<String> {
        let value = self.command("GetElementAttribute", &json!({ "id": self.id, "name": name }));
        value.as_str().map(str::to_owned)
    }

    #[track_caller]
    fn command(&self, name: &str, parameters: &Value) -> Value {
        self.browser.command(name, parameters)
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "server: Chromium"]
    fn a_page_can_be_read_and_operated_in_chromium() {
        read_and_operate(BrowserKind::Chromium);
    }

    #[test]
    #[ignore = "server: Firefox"]
    fn a_page_can_be_read_and_operated_in_firefox() {
        read_and_operate(BrowserKind::Firefox);
    }

    fn read_and_operate(kind: BrowserKind) {
        let browser = Browser::start(kind);
        browser.open(
            "data:text/html,<!doctype html><input id=in><input id=file type=file><p id=out title=words></p><script>\
             document.getElementById('in').oninput = e => setTimeout(() => {\
               document.getElementById('out').textContent = e.target.value; throw new Error('typed') }, 50)</script>",
        );
        let field = browser.find("#in");
        field.send_keys("x");
        assert_eq!(browser.wait_for_text("#out", "x"), "x");
        assert!(browser.log().iter().any(|line| line.contains("typed")));
        field.clear();
        assert_eq!(field.property("value"), "");
        assert_eq!(browser.find("#out").attribute("title").as_deref(), Some("words"));
        let file = tempfile::NamedTempFile::new().unwrap();
        browser.find("#file").send_keys(&file.path().to_string_lossy());
        let name = browser
            .run("return document.querySelector(arguments[0]).files[0].name", &[json!("#file")]);
        assert_eq!(name, file.path().file_name().unwrap().to_string_lossy().as_ref());
        assert_eq!(browser.run("return Promise.resolve(6 * 7)", &[]), 42);
    }
}
