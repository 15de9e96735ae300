//! Tests of the engine from a client's side, with curl as the client.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::*;
use crate::{disk, tools};

const TRANSFER: &str = "<image_transfer><direction>download</direction><format>raw</format><inactivity_timeout>60</inactivity_timeout>";

struct Client {
    api: String,
    token: String,
}

impl Client {
    fn log_in(engine: &Engine) -> Self {
        let api = engine.api_url();
        let sso = api.replace("/api", "/sso/oauth/token");
        let fields = [
            ("grant_type", "password"),
            ("scope", "ovirt-app-api"),
            ("username", USER),
            ("password", PASSWORD),
        ];
        let mut args = Vec::new();
        for (name, value) in fields {
            args.extend(["--data-urlencode".to_owned(), format!("{name}={value}")]);
        }
        args.push(sso);
        let answer: Value = serde_json::from_str(&curl(&args)).unwrap();
        Self { api, token: answer["access_token"].as_str().unwrap().to_owned() }
    }

    fn ask(&self, path: &str, body: Option<&str>) -> String {
        let mut args: Vec<String> = vec!["-H".into(), "Version: 4".into()];
        args.extend(["-H".into(), "Accept: application/xml".into()]);
        args.extend(["-H".into(), format!("Authorization: Bearer {}", self.token)]);
        if let Some(body) = body {
            args.extend(["-d".into(), body.to_owned()]);
        }
        args.push(format!("{}{path}", self.api));
        curl(&args)
    }

    /// Starts a transfer and returns its ID and the URL of its image.
    fn transfer(&self) -> (String, String) {
        let body = format!("{TRANSFER}<disk id=\"{DISK_ID}\"/></image_transfer>");
        let answer = self.ask("/imagetransfers", Some(&body));
        let id = xml::id(&answer, "image_transfer").expect(&answer);
        (id, xml::text(&answer, "transfer_url").expect(&answer))
    }
}

fn curl(args: &[String]) -> String {
    tools::run("curl", [&["-sS".to_owned()], args].concat())
}

/// Requests a range and returns the status line, the headers about the length, and the body.
fn range(url: &str, range: &str) -> (Vec<String>, String) {
    let answer = curl(&["-i".into(), "-r".into(), range.into(), url.into()]);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let wanted = |line: &&str| {
        ["http/1.1", "content-length", "content-range"].iter().any(|name| line.starts_with(name))
    };
    let head = head.to_lowercase();
    let mut lines: Vec<String> = head.lines().filter(wanted).map(str::to_owned).collect();
    lines.sort();
    (lines, body.to_owned())
}

fn sparse_text(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    bytes[..100_000].fill(b'a');
    bytes[500_000..600_000].fill(b'b');
    bytes
}

/// Returns the ranges with data. Adjacent ones are joined, because servers may divide them
/// differently.
fn data_runs(extents: &str) -> Vec<(u64, u64)> {
    let extents: Vec<Value> = serde_json::from_str(extents).expect(extents);
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for extent in extents.iter().filter(|extent| extent["zero"] == false) {
        let (start, length) =
            (extent["start"].as_u64().unwrap(), extent["length"].as_u64().unwrap());
        match runs.last_mut() {
            Some((_, end)) if *end == start => *end += length,
            _ => runs.push((start, start + length)),
        }
    }
    runs
}

#[test]
#[ignore = "server: ovirt-imageio"]
fn the_image_server_answers_as_the_real_one_does() {
    let contents = Contents { raw: sparse_text(1 << 20).into(), cow: Bytes::new() };
    let daemon =
        Script { daemon: Some(Arc::new(Daemon::start(None))), ..Script::new(contents.clone()) };
    let answers = [Script::new(contents), daemon].map(|script| {
        let engine = Engine::start(script);
        let client = Client::log_in(&engine);
        let (id, url) = client.transfer();
        let options: Value =
            serde_json::from_str(&curl(&["-XOPTIONS".into(), url.clone()])).unwrap();
        let extents = data_runs(&curl(&[format!("{url}/extents")]));
        let part = range(&url, "99990-100010");
        let whole = curl(std::slice::from_ref(&url)).len();
        assert!(
            client
                .ask(&format!("/imagetransfers/{id}/finalize"), Some("<action/>"))
                .contains("complete")
        );
        let refused = curl(&["-w%{http_code}".into(), "-o/dev/null".into(), url]);
        assert_eq!(engine.phases(), ["finished_success"]);
        (options["features"].clone(), extents, part, whole, refused)
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0].1, [(0, 2 << 16), (7 << 16, 10 << 16)]);
    assert_eq!(answers[0].4, "403");
}

#[test]
fn strangers_are_refused_and_a_disk_has_one_transfer_at_a_time() {
    let contents = Contents { raw: disk::content(1, 1 << 20).into(), cow: Bytes::new() };
    let engine = Engine::start(Script {
        initializing: 1,
        locked: vec![DISK_IS_LOCKED],
        ..Script::new(contents)
    });
    let stranger = Client { api: engine.api_url(), token: "guessed".into() };
    assert!(stranger.ask("", None).contains("Unauthorized"));
    let client = Client::log_in(&engine);
    // The root of the API, which is missing in CDI's own fake engine too.
    assert!(client.ask("", None).contains("Entity not found"));
    let body = format!("{TRANSFER}<disk id=\"{DISK_ID}\"/></image_transfer>");
    let start = || client.ask("/imagetransfers", Some(&body));
    assert!(start().contains("Disk is locked"));
    let started = start();
    assert_eq!(xml::text(&started, "phase").as_deref(), Some("initializing"));
    assert!(start().contains("Disk is locked"));
    let id = xml::id(&started, "image_transfer").unwrap();
    let path = format!("/imagetransfers/{id}");
    assert!(client.ask(&path, None).contains("<transfer_url>"));
    client.ask(&format!("{path}/cancel"), Some("<action/>"));
    assert_eq!(engine.phases(), ["cancelled_user"]);
    let log_out = engine.api_url().replace("/api", "/services/sso-logout");
    curl(&["-d".into(), format!("token={}", client.token), log_out]);
    assert!(engine.is_logged_out() && client.ask("", None).contains("Unauthorized"));
}
