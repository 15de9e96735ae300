//! Who may upload: the header, the signature, and the claims of a token.

use std::fmt;
use std::time::Instant;

use serde_json::{Value, json};
use testkit::cases::check_all;
use testkit::fail::OrFail;
use testkit::https::Request;
use testkit::tokens::{self, TokenKey, claims, compact};
use testkit::upload_proxy::{NAMESPACE, PVC, Scripted};
use testkit::upstream::Script;

use crate::contract::BINARY;

/// An Authorization header and the expected status.
struct Row {
    name: String,
    authorization: Option<String>,
    status: u16,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn row(name: impl Into<String>, authorization: impl Into<String>, status: u16) -> Row {
    Row { name: name.into(), authorization: Some(authorization.into()), status }
}

/// Returns a token with these claims changed; `null` removes a claim.
fn changed(key: &TokenKey, changes: &Value) -> String {
    key.sign("PS256", &changed_claims(changes))
}

fn changed_claims(changes: &Value) -> Value {
    let mut claims = claims(PVC, NAMESPACE);
    for (name, value) in changes.as_object().or_fail("claims") {
        match value {
            Value::Null => drop(claims.as_object_mut().or_fail("claims").remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

/// Sends every header on a connection of its own, and checks that only the valid ones arrive
/// upstream.
fn check(front: &Scripted, rows: Vec<Row>) {
    let passed = rows.iter().filter(|row| row.status == 200).count();
    check_all(rows, |row| {
        let request = Request::post("/v1beta1/upload");
        let request = match &row.authorization {
            Some(value) => request.header("Authorization", value),
            None => request,
        };
        let response = front.server.exchange(&request, b"body");
        assert_eq!(response.status, row.status, "{response:?}\n{}", front.server.log());
        if row.status != 200 {
            // The same text for every reason, so that a forger does not learn what is wrong.
            response.assert_refused(row.status, "token");
        }
    });
    assert_eq!(front.upstream.seen().len(), passed);
}

#[test]
fn the_header_must_be_bearer_white_space_and_a_token() {
    let started = Instant::now();
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    let token = front.proxy.key().token(PVC, NAMESPACE);
    let mut rows = vec![
        row("as virtctl writes it", format!("Bearer {token}"), 200),
        row("lower case", format!("bearer {token}"), 200),
        row("upper case", format!("BEARER {token}"), 200),
        row("two spaces", format!("Bearer  {token}"), 200),
        row("a tab", format!("Bearer\t{token}"), 200),
        row("no space", format!("Bearer{token}"), 400),
        row("a colon", format!("Bearer: {token}"), 400),
        row("no scheme", token.clone(), 400),
        row("another scheme", format!("Basic {token}"), 400),
        row("something before", format!("x Bearer {token}"), 400),
        row("something behind", format!("Bearer {token} x"), 400),
        row("two tokens", format!("Bearer {token}, Bearer {token}"), 400),
        row("padding", format!("Bearer {token}="), 400),
        row("only padding", "Bearer ==", 400),
        row("empty", "", 400),
        row("only the scheme", "Bearer", 400),
        row("only the scheme and a space", "Bearer ", 400),
        row("not ASCII", format!("Bearer {token}\u{fc}"), 400),
        row("no token at all", "Bearer abc", 401),
        row("other characters of tokens", "Bearer a.b-c~d+e/f_g", 401),
        row("dots", "Bearer ...", 401),
        row("a part too much", format!("Bearer {token}.x"), 401),
        row("five parts", "Bearer a.b.c.d.e", 401),
    ];
    rows.push(Row { name: "none".into(), authorization: None, status: 400 });
    check(&front, rows);
    // Strangers can cause these lines, so there is at most one a second.
    let log = front.server.log();
    let refused = log.lines().filter(|line| line.contains("refused a request from ")).count();
    assert!((1..=1 + started.elapsed().as_secs()).contains(&(refused as u64)), "{log}");
}

#[test]
fn all_rsa_signatures_are_accepted_and_no_others() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    let key = front.proxy.key();
    let claims = claims(PVC, NAMESPACE);
    let mut rows: Vec<_> = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
        .into_iter()
        .map(|algorithm| {
            let token = key.sign(algorithm, &claims);
            row(algorithm, format!("Bearer {token}"), 200)
        })
        .collect();
    let public = key.public_pem();
    let good = key.token(PVC, NAMESPACE);
    let (message, signature) = good.rsplit_once('.').or_fail("a signature");
    let (header, payload) = message.split_once('.').or_fail("claims");
    let other_claims = key.token("other", NAMESPACE);
    let other_payload = other_claims.split('.').nth(1).or_fail("claims");
    let rs_header = key.sign("RS256", &claims);
    let rs_header = rs_header.split('.').next().or_fail("a header");
    for (name, token) in [
        ("another key", TokenKey::generate().token(PVC, NAMESPACE)),
        ("HS256 with the public key", tokens::hs256(public.as_bytes(), &claims)),
        ("HS256 with the trimmed public key", tokens::hs256(public.trim().as_bytes(), &claims)),
        ("HS256 without a secret", tokens::hs256(b"", &claims)),
        ("ES256", tokens::es256(&claims)),
        ("none", tokens::unsigned(&claims)),
        ("None", compact(&json!({ "alg": "None" }), &claims, |_| b"x".to_vec())),
        ("an unknown algorithm", compact(&json!({ "alg": "PS999" }), &claims, |_| vec![0; 256])),
        ("no algorithm", compact(&json!({ "typ": "JWT" }), &claims, |_| vec![0; 256])),
        ("no signature", format!("{message}.")),
        ("two parts", message.to_owned()),
        ("other claims", format!("{header}.{other_payload}.{signature}")),
        ("another algorithm", format!("{rs_header}.{payload}.{signature}")),
        ("a cut signature", format!("{message}.{}", &signature[..200])),
        ("signature of zeros", compact(&json!({ "alg": "PS256" }), &claims, |_| vec![0; 256])),
    ] {
        rows.push(row(name, format!("Bearer {token}"), 401));
    }
    for position in
        (0..good.len()).step_by(13).filter(|position| &good[*position..=*position] != ".")
    {
        let changed = if &good[position..=position] == "A" { "B" } else { "A" };
        let token = format!("{}{changed}{}", &good[..position], &good[position + 1..]);
        rows.push(row(format!("byte {position} changed"), format!("Bearer {token}"), 401));
    }
    check(&front, rows);
}

#[test]
fn times_have_a_leeway_of_ten_seconds() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    let key = front.proxy.key();
    let now = tokens::now();
    let mut rows = Vec::new();
    for (name, changes, status) in [
        ("expired 5 s ago", json!({ "exp": now - 5 }), 200),
        ("expired 20 s ago", json!({ "exp": now - 20 }), 401),
        ("expired in 1970", json!({ "exp": 1 }), 401),
        ("valid in 5 s", json!({ "nbf": now + 5 }), 200),
        ("valid in 60 s", json!({ "nbf": now + 60 }), 401),
        ("made in 5 s", json!({ "iat": now + 5 }), 200),
        ("made in 60 s", json!({ "iat": now + 60 }), 401),
        ("no expiry", json!({ "exp": null }), 200),
        ("no beginning", json!({ "nbf": null }), 200),
        ("no times", json!({ "exp": null, "nbf": null, "iat": null }), 200),
        ("fractions", json!({ "exp": (now + 60) as f64 + 0.5 }), 200),
        ("a time as text", json!({ "exp": (now + 60).to_string() }), 401),
        ("a time as a list", json!({ "nbf": [now] }), 401),
    ] {
        rows.push(row(name, format!("Bearer {}", changed(key, &changes)), status));
    }
    check(&front, rows);
}

#[test]
fn claims_must_name_issuer_operation_and_pvc() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    let key = front.proxy.key();
    let resource = |resource: &str| json!({ "group": "", "version": "v1", "resource": resource });
    let mut rows = Vec::new();
    for (name, changes, status) in [
        ("another issuer", json!({ "iss": "cdi-api" }), 401),
        ("no issuer", json!({ "iss": null }), 401),
        ("an issuer as a list", json!({ "iss": ["cdi-apiserver"] }), 401),
        ("another operation", json!({ "operation": "Clone" }), 400),
        ("an operation in lower case", json!({ "operation": "upload" }), 400),
        ("no operation", json!({ "operation": null }), 400),
        ("an empty name", json!({ "name": "" }), 400),
        ("no name", json!({ "name": null }), 400),
        ("a name with a path", json!({ "name": "evil.example:443/" }), 400),
        ("an empty namespace", json!({ "namespace": "" }), 400),
        ("no namespace", json!({ "namespace": null }), 400),
        ("a namespace with a dot", json!({ "namespace": "a.b" }), 400),
        ("another resource", json!({ "resource": resource("datavolumes") }), 400),
        ("an empty resource", json!({ "resource": resource("") }), 400),
        ("no resource", json!({ "resource": null }), 400),
        (
            "another group",
            json!({ "resource": { "group": "x", "version": "v9", "resource": "persistentvolumeclaims" } }),
            200,
        ),
        ("parameters", json!({ "params": { "a": "b" } }), 200),
        ("an audience and other claims", json!({ "aud": "somebody", "sub": "x", "jti": "1" }), 200),
    ] {
        rows.push(row(name, format!("Bearer {}", changed(key, &changes)), status));
    }
    check(&front, rows);
    let log = front.server.log();
    assert!(log.contains("Bad token"), "{log}");
}

#[test]
fn header_parameters_are_ignored_unless_they_are_critical() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    // Only the header differs; the claims are the same.
    let signed = |more: &Value| {
        let mut header = json!({ "alg": "PS256" });
        for (name, value) in more.as_object().or_fail("a header") {
            header[name] = value.clone();
        }
        front.proxy.key().sign_with(&header, "PS256", &claims(PVC, NAMESPACE))
    };
    let rows = [
        ("a type", json!({ "typ": "JWT" }), 200),
        ("a key's name", json!({ "kid": "../../etc/passwd" }), 200),
        (
            "keys from elsewhere",
            json!({ "jku": "https://localhost/keys", "x5u": "https://localhost/x" }),
            200,
        ),
        // RFC 7515 §4.1.11: a token with an unknown critical parameter must be refused.
        ("an unknown critical parameter", json!({ "crit": ["x"], "x": 1 }), 401),
    ]
    .into_iter()
    .map(|(name, more, status)| row(name, format!("Bearer {}", signed(&more)), status));
    check(&front, rows.collect());
}

#[test]
fn the_first_of_two_headers_counts() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    let good = front.proxy.bearer(PVC);
    for (values, status) in [([good.as_str(), "Bearer x"], 200), (["Bearer x", &good], 401)] {
        let request = values.iter().fold(Request::post("/v1beta1/upload"), |request, value| {
            request.header("Authorization", value)
        });
        let response = front.server.exchange(&request, b"body");
        // It is also acceptable to refuse both.
        assert!([status, 400].contains(&response.status), "{response:?}");
    }
}

#[test]
fn oversized_tokens_are_refused_and_harm_nothing() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    let padded = changed(front.proxy.key(), &json!({ "name": "x".repeat(20_000) }));
    for token in ["x".repeat(8_000), "x".repeat(60_000), "x".repeat(2_000_000), padded] {
        let request =
            Request::post("/v1beta1/upload").header("Authorization", &format!("Bearer {token}"));
        let mut connection = front.server.connect();
        // The server may close the connection while the rest is still being sent.
        connection.send_until_answered(&request.length(0).bytes()).ok();
        if let Ok(response) = connection.response_to("POST") {
            let status = response.status;
            assert!(
                [400, 401, 431, 503].contains(&status),
                "{} bytes of token: {response:?}",
                token.len()
            );
        } else {
            // A header above 16 KiB is not read to its end, and the close may overtake the answer.
            assert!(token.len() > 16 << 10, "{} bytes of token: no answer", token.len());
        }
    }
    assert_eq!(front.upstream.seen().len(), 0);
    let good = front.request("POST", "/v1beta1/upload");
    assert_eq!(front.server.exchange(&good, b"body").status, 200);
}
