//! Malicious clouds: an error in bounded memory and time, and no disk.

use std::fmt;
use std::time::Duration;

use serde_json::json;
use testkit::adversary::Reply;
use testkit::cases::check_all;
use testkit::openstack::script::{Cloud, Script, TOKENS, catalog, image_path};

use super::{Place, assert_refused, import};
use crate::place::loud;

/// A name, a malicious script, and part of the error about it.
struct Case(&'static str, Script, &'static str);

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[track_caller]
fn refuse_all(cases: Vec<Case>) {
    check_all(cases, |Case(_, script, sentence)| {
        let (place, cloud) = (Place::new(), Cloud::start(script.clone()));
        assert_refused(&place, import(&place, &cloud).args(["--retries", "0"]), sentence);
    });
}

/// A reply with a token and this document.
fn granted(document: impl Into<bytes::Bytes>) -> Reply {
    Reply::status(201, document).with("X-Subject-Token", "token-1")
}

#[test]
fn malicious_documents_take_bounded_memory_and_time() {
    let unusable = "the identity service 127.0.0.1 returns no usable token";
    let unread = "description of the image cannot be read";
    let bound = "larger than the 1048576 bytes allowed";
    let endpoint = r#"{"interface":"","url":""}"#;
    let mut endpoints = vec![endpoint; 38_000].join(",");
    endpoints =
        format!(r#"{{"token":{{"catalog":[{{"type":"image","endpoints":[{endpoints}]}}]}}}}"#);
    let services = vec![r#"{"type":""}"#; 86_000].join(",");
    let services = format!(r#"{{"token":{{"catalog":[{services}]}}}}"#);
    let on = |name, reply, sentence| Case(name, Script::new("x").replying(TOKENS, reply), sentence);
    let of = |name, reply, sentence| {
        Case(name, Script::new("x").replying(&image_path(), reply), sentence)
    };
    refuse_all(vec![
        on("many endpoints", granted(endpoints), "the image service has no public endpoint"),
        on("many services", granted(services), "has no image service"),
        on("depth", granted("[".repeat(1_000_000)), unusable),
        on(
            "deep services",
            granted(format!("{{\"token\":{}", "{\"catalog\":[".repeat(50_000))),
            unusable,
        ),
        on("2 MiB", granted("x".repeat(2 << 20)), bound),
        on("without end", Reply::endless(" ".repeat(1 << 16), Duration::ZERO), bound),
        on("a page", granted("<html>log in</html>"), unusable),
        on("nothing", granted(""), unusable),
        on("null", granted("null"), unusable),
        on("other types", granted(r#"{"token":{"catalog":{"image":1}}}"#), unusable),
        on("no token", Reply::status(201, r#"{"token":{}}"#), unusable),
        on(
            "an empty token",
            Reply::status(201, r#"{"token":{}}"#).with("X-Subject-Token", ""),
            unusable,
        ),
        on("no content", Reply::status(204, ""), "gives no token: 204"),
        of("depth of an image", Reply::of("[".repeat(1_000_000)), unread),
        of("an image without end", Reply::endless(" ".repeat(1 << 16), Duration::ZERO), bound),
        of("no image", Reply::of("7"), unread),
        of("a negative size", Reply::of(r#"{"status":"active","size":-1}"#), unread),
        of("a size beyond 64 bits", Reply::of(r#"{"status":"active","size":1e30}"#), unread),
        of("no status", Reply::of("{}"), "without a status"),
        of("gone", Reply::status(410, ""), "does not describe the image: 410 Gone"),
    ]);
}

#[test]
fn texts_of_a_cloud_are_shortened_and_escaped() {
    let many: Vec<_> = (0..500).map(|n| format!("{n}{}", loud(500))).collect();
    let of = |kind: &'static str| -> Vec<_> {
        many.iter()
            .map(|text| match kind {
                "kind" => (text.as_str(), "public", "one", "http://h"),
                "interface" => ("image", text.as_str(), "one", "http://h"),
                _ => ("image", "public", text.as_str(), "http://h"),
            })
            .collect()
    };
    let with = |name, endpoints: Vec<_>| {
        let catalog = catalog(&endpoints);
        Case(name, Script { catalog, ..Script::new("x") }, "begin")
    };
    let error = json!({"error": {"message": loud(500_000)}}).to_string();
    refuse_all(vec![
        with("kinds", of("kind")),
        with("interfaces", of("interface")),
        with("regions", of("region")),
        Case(
            "an error of the identity service",
            Script::new("x").replying(TOKENS, Reply::status(403, error.clone())),
            "gives no token: 403 Forbidden: ",
        ),
        Case(
            "an error of the image service",
            Script::new("x").replying(&image_path(), Reply::status(403, error)),
            "does not describe the image: 403 Forbidden: ",
        ),
        Case("a status", Script::new("x").with("status", loud(100_000)), "begin"),
        Case("an algorithm", Script::new("x").with("os_hash_value", loud(100_000)), "its hash"),
        Case(
            "a checksum",
            Script::new("x").with("os_hash_algo", ()).with("checksum", loud(100_000)),
            "its hash",
        ),
    ]);
}

#[test]
fn unusable_addresses_of_the_image_service_are_not_followed() {
    let said = "the catalogue's address of the image service cannot be used";
    let cases = [
        ("file:///etc/passwd", said),
        ("unix:/run/x.sock", said),
        ("http://", said),
        ("", said),
        ("x", said),
        ("http://user:password@127.0.0.1:1/", said),
        ("http://127.0.0.1:1/?next=", said),
        // Nothing listens on TCP port 1.
        ("http://127.0.0.1:1/v2/", "connection refused"),
    ];
    let case = |(url, sentence)| {
        let catalog = catalog(&[("image", "public", "one", url)]);
        Case(url, Script { catalog, ..Script::new("x") }, sentence)
    };
    refuse_all(cases.into_iter().map(case).collect());
}
