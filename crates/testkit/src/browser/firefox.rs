//! A headless Firefox, driven through its own protocol Marionette, which carries WebDriver
//! commands (<https://firefox-source-docs.mozilla.org/testing/marionette/Protocol.html>).
//!
//! `geckodriver`, which translates HTTP into Marionette, is not used: Debian has no package of it,
//! and building it takes minutes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{BrowserProcess, BrowserSession, text};
use crate::fail::OrFail;
use crate::{tools, wait};

/// Settings besides those that Firefox sets for Marionette: any free port, no proxy, and no
/// Mozilla server.
const SETTINGS: &str = r#"
user_pref("marionette.port", 0);
user_pref("network.proxy.type", 0);
user_pref("services.settings.server", "data:,");
"#;

/// The file in the profile that contains the port.
const PORT: &str = "MarionetteActivePort";

/// Returns the messages about pages and clears the log. Messages about Firefox itself name files
/// with other schemes.
const LOG: &str = r#"
    const messages = Services.console.getMessageArray().map(({ message }) => message);
    Services.console.reset();
    return messages.filter((message) => /\{file: "(https?|data):/.test(message));
"#;

/// A session with Firefox.
pub(super) struct FirefoxSession {
    connection: TcpStream,
    /// Dropped before its profile.
    _process: BrowserProcess,
    _profile: TempDir,
}

impl FirefoxSession {
    /// Starts the browser.
    #[track_caller]
    pub(super) fn start() -> Self {
        let profile = tempfile::tempdir().or_fail("a folder for the browser's profile");
        std::fs::write(profile.path().join("user.js"), SETTINGS).or_fail("the browser's settings");
        let process = Command::new(tools::find("firefox-esr"))
            // `--remote-allow-system-access` lets LOG read the console's messages.
            .args([
                "--headless",
                "--no-remote",
                "--marionette",
                "--remote-allow-system-access",
                "--profile",
            ])
            .arg(profile.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = BrowserProcess(process.or_fail("firefox-esr"));
        let port = profile.path().join(PORT);
        let port: u16 = wait::find(
            || "Firefox listens".to_owned(),
            || std::fs::read_to_string(&port).ok()?.parse().ok(),
        );
        let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).or_fail("Marionette");
        connection.set_read_timeout(Some(wait::PATIENCE)).or_fail("a time limit");
        read_message(&connection).or_fail("a greeting of Marionette");
        let session = Self { connection, _process: process, _profile: profile };
        session.command("NewSession", &json!({ "acceptInsecureCerts": true })).or_fail("a session");
        session
    }

    /// Sends a command and returns its result. A command is `[0, id, name, parameters]`, its
    /// response `[1, id, error, result]`.
    fn send(&self, name: &str, parameters: &Value) -> io::Result<Value> {
        let message = json!([0, 1, name, parameters]).to_string();
        write!(&self.connection, "{}:{message}", message.len())?;
        let mut answer = read_message(&self.connection)?;
        match &answer[2] {
            Value::Null => Ok(answer[3].take()),
            error => Err(io::Error::other(text(&error["message"]))),
        }
    }
}

impl BrowserSession for FirefoxSession {
    fn command(&self, name: &str, parameters: &Value) -> io::Result<Value> {
        Ok(self.send(&format!("WebDriver:{name}"), parameters)?["value"].take())
    }

    fn log(&self) -> io::Result<Vec<String>> {
        self.send("Marionette:SetContext", &json!({ "value": "chrome" }))?;
        let messages = self.command("ExecuteScript", &json!({ "script": LOG, "args": [] }));
        self.send("Marionette:SetContext", &json!({ "value": "content" }))?;
        Ok(messages?.as_array().or_fail("a list of messages").iter().map(text).collect())
    }
}

/// Reads a message: its length in decimal digits, a colon, and JSON. Nothing follows it until the
/// next command, so a fresh buffer loses no bytes.
fn read_message(connection: &TcpStream) -> io::Result<Value> {
    let mut connection = BufReader::new(connection);
    let mut length = Vec::new();
    connection.read_until(b':', &mut length)?;
    let length = String::from_utf8_lossy(&length).trim_end_matches(':').parse();
    let length = length.map_err(|_| io::Error::other("Firefox has ended"))?;
    Ok(serde_json::from_reader(connection.take(length))?)
}
