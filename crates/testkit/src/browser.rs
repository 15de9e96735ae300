//! Headless browsers, driven by the commands of W3C WebDriver (<https://www.w3.org/TR/webdriver2/>).

use std::io;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use self::chromium::ChromiumSession;
use self::firefox::FirefoxSession;
use crate::fail::OrFail;
use crate::wait;

mod chromium;
mod firefox;

/// Time that a browser may take to listen, and for one command; the first one starts Chromium.
const PATIENCE: Duration = Duration::from_secs(60);

/// The key of an element's name in JSON (WebDriver §12, "web element identifier").
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// The browsers in which the page is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrowserKind {
    /// Chromium, by chromedriver.
    Chromium,
    /// Firefox, by Marionette.
    Firefox,
}

/// A browser with one window and a profile of its own. It trusts every certificate, and ends when it is dropped.
pub struct Browser {
    session: Box<dyn BrowserSession>,
}

/// A session with a running browser.
trait BrowserSession {
    /// Sends a command by its name in WebDriver, less the spaces, and returns its result. `id` in the parameters is an element.
    fn command(&self, name: &str, parameters: &Value) -> io::Result<Value>;

    /// The messages that came since the last call.
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

    /// The first element that the CSS selector matches.
    #[track_caller]
    pub fn find(&self, css: &str) -> Element<'_> {
        let found = self.command("FindElement", &json!({ "using": "css selector", "value": css }));
        Element { browser: self, id: text(&found[ELEMENT]) }
    }

    /// The value that the body of a function returns which is called with these arguments in the page. A promise is waited for.
    #[track_caller]
    pub fn run(&self, script: &str, arguments: &[Value]) -> Value {
        self.command("ExecuteScript", &json!({ "script": script, "args": arguments }))
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

    /// The browser's complaints about pages since the last call: errors of scripts, violations of the policy, and in Chromium files that
    /// are missing and messages of scripts.
    #[track_caller]
    pub fn log(&self) -> Vec<String> {
        self.session.log().or_fail("the log")
    }

    #[track_caller]
    fn command(&self, name: &str, parameters: &Value) -> Value {
        self.session.command(name, parameters).or_fail(name)
    }
}

/// A process with a group of its own, which ends when this is dropped.
struct BrowserProcess(Child);

impl Drop for BrowserProcess {
    fn drop(&mut self) {
        rustix::process::kill_process_group(Pid::from_child(&self.0), Signal::KILL).ok();
        self.0.wait().ok();
    }
}

/// An element of the page that is open.
pub struct Element<'b> {
    browser: &'b Browser,
    id: String,
}

impl Element<'_> {
    /// Clicks it.
    #[track_caller]
    pub fn click(&self) {
        self.command("ElementClick", &json!({ "id": self.id }));
    }

    /// Types into it, or chooses the file of this path.
    #[track_caller]
    pub fn send_keys(&self, keys: &str) {
        self.command("ElementSendKeys", &json!({ "id": self.id, "text": keys }));
    }

    /// Empties a field.
    #[track_caller]
    pub fn clear(&self) {
        self.command("ElementClear", &json!({ "id": self.id }));
    }

    /// Its text as it is seen: nothing while it is hidden.
    #[track_caller]
    pub fn text(&self) -> String {
        text(&self.command("GetElementText", &json!({ "id": self.id })))
    }

    /// A property of its object in the page.
    #[track_caller]
    pub fn property(&self, name: &str) -> Value {
        self.command("GetElementProperty", &json!({ "id": self.id, "name": name }))
    }

    /// An attribute of its tag.
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
    fn a_page_is_seen_and_touched_in_chromium() {
        see_and_touch(BrowserKind::Chromium);
    }

    #[test]
    fn a_page_is_seen_and_touched_in_firefox() {
        see_and_touch(BrowserKind::Firefox);
    }

    fn see_and_touch(kind: BrowserKind) {
        let browser = Browser::start(kind);
        browser.open(
            "data:text/html,<!doctype html><input id=in><input id=file type=file><p id=out title=words></p><script>\
             document.getElementById('in').oninput = e => setTimeout(() => {\
               document.getElementById('out').textContent = e.target.value; throw new Error('typed') }, 50)</script>",
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
