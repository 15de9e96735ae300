//! Servers that require more than plain HTTP: what they are sent, and that other servers are not
//! sent it.

use std::sync::Mutex;

use async_trait::async_trait;
use fetch::http::{ContinuityProof, RefusalVerdict, RefusedRequest, ServerDialect};
use stream::error::SourceErrorKind;
use testkit::origin::Fault;
use url::Url;

use super::*;

/// A dialect that sends a token, and changes it after a refusal.
#[derive(Debug, Default)]
struct Token {
    text: Mutex<&'static str>,
    refusals: Mutex<Vec<(u16, String)>>,
    /// The verdicts on refusals; the last one comes first.
    verdict: Mutex<Vec<RefusalVerdict>>,
    /// The prefix of URLs to which redirects may take the token.
    friend: Option<String>,
}

#[async_trait]
impl ServerDialect for Token {
    async fn authorize(&self, request: &mut reqwest::Request) -> Result<(), SourceError> {
        let token = self.text.lock().unwrap().parse().unwrap();
        request.headers_mut().insert("x-token", token);
        Ok(())
    }

    fn is_same_service(&self, to: &Url) -> bool {
        self.friend.as_deref().is_some_and(|friend| to.as_str().starts_with(friend))
    }

    async fn judge_refusal(&self, refusal: RefusedRequest<'_>) -> RefusalVerdict {
        let body = String::from_utf8_lossy(refusal.body).into_owned();
        let mut refusals = self.refusals.lock().unwrap();
        refusals.push((refusal.status.as_u16(), body));
        *self.text.lock().unwrap() = "new";
        self.verdict.lock().unwrap().pop().unwrap_or(RefusalVerdict::Plain)
    }
}

fn with(verdicts: Vec<RefusalVerdict>) -> Arc<Token> {
    Arc::new(Token { text: Mutex::new("old"), verdict: Mutex::new(verdicts), ..Token::default() })
}

fn speaking(url: &str, dialect: &Arc<Token>) -> HttpConfig {
    HttpConfig { dialect: Some(Arc::clone(dialect) as Arc<dyn ServerDialect>), ..config(url) }
}

fn fetch_speaking(origin: &Origin, dialect: &Arc<Token>) -> Result<Vec<u8>, SourceError> {
    read_all(&mut *open(speaking(&origin.url("/disk.img"), dialect))?.open_body()?)
}

/// Returns the token of every request.
fn tokens(origin: &Origin) -> Vec<Option<String>> {
    let requests = origin.requests();
    let token = |header: Option<&str>| header.map(str::to_owned);
    requests.iter().map(|recorded| token(recorded.request.header("x-token"))).collect()
}

fn wants_new_token() -> Script {
    Script {
        required_header: Some(("x-token".to_owned(), "new".to_owned())),
        ..Script::new("disk")
    }
}

#[test]
fn after_a_refusal_a_new_token_is_tried() {
    let origin = start(wants_new_token());
    let dialect = with(vec![RefusalVerdict::Again(None)]);
    assert_eq!(fetch_speaking(&origin, &dialect).unwrap(), b"disk");
    assert_eq!(tokens(&origin), [Some("old".to_owned()), Some("new".to_owned())]);
    assert_eq!(dialect.refusals.lock().unwrap()[0].0, 403);
}

#[test]
fn a_second_refusal_in_a_row_is_an_error() {
    let origin = start(Script {
        required_header: Some(("x-token".to_owned(), "never".to_owned())),
        ..Script::new("disk")
    });
    let dialect = with(vec![
        RefusalVerdict::Again(None),
        RefusalVerdict::Again(None),
        RefusalVerdict::Again(None),
    ]);
    let error = fetch_speaking(&origin, &dialect).unwrap_err();
    assert_eq!(error.to_string(), "expected status code 200, got 403. Status: 403 Forbidden");
    assert_eq!(tokens(&origin).len(), 2);
}

#[test]
fn every_part_of_an_interrupted_transfer_is_authorized() {
    let body = noise(3 << 20);
    let origin = start(Script {
        faults: vec![Fault::CutAt(1 << 20), Fault::CutAt(1 << 20)],
        ..Script::new(body.clone())
    });
    let dialect = with(Vec::new());
    assert!(fetch_speaking(&origin, &dialect).unwrap() == body);
    assert_eq!(tokens(&origin), vec![Some("old".to_owned()); 3]);
}

#[test]
fn the_message_of_the_server_becomes_the_error() {
    let origin = start(wants_new_token());
    let dialect = with(vec![RefusalVerdict::Described {
        text: "NoSuchKey: nothing here".to_owned(),
        transient: false,
        advice: None,
    }]);
    let error = fetch_speaking(&origin, &dialect).unwrap_err();
    assert_eq!(error.to_string(), "NoSuchKey: nothing here");
    assert_eq!(error.kind(), SourceErrorKind::Status(403));
}

#[test]
fn a_temporary_refusal_is_waited_for() {
    let dialect = with(vec![RefusalVerdict::Described {
        text: "SlowDown".to_owned(),
        transient: true,
        advice: None,
    }]);
    let body = noise(1 << 20);
    let broken = start(Script {
        faults: vec![Fault::CutAt(1000), Fault::Status(503, None)],
        ..Script::new(body.clone())
    });
    assert!(fetch_speaking(&broken, &dialect).unwrap() == body);
    assert_eq!(dialect.refusals.lock().unwrap()[0].0, 503);
}

#[test]
fn only_friends_get_the_token_after_a_redirect() {
    let elsewhere = start(Script::new("disk"));
    let target = elsewhere.url("/there");
    let redirects = || Script {
        redirects: [("/disk.img".to_owned(), vec![target.clone()])].into(),
        ..Script::new("")
    };
    let dialect = with(Vec::new());
    assert_eq!(fetch_speaking(&start(redirects()), &dialect).unwrap(), b"disk");
    assert_eq!(tokens(&elsewhere), [None]);
    let friendly = Arc::new(Token {
        text: Mutex::new("old"),
        friend: Some(elsewhere.url("/")),
        ..Token::default()
    });
    assert_eq!(fetch_speaking(&start(redirects()), &friendly).unwrap(), b"disk");
    assert_eq!(tokens(&elsewhere)[1].as_deref(), Some("old"));
}

#[test]
fn a_refusal_may_lead_to_another_url() {
    let body = noise(2 << 20);
    let elsewhere =
        start(Script { faults: vec![Fault::CutAt(1 << 20)], ..Script::new(body.clone()) });
    let there = Url::parse(&elsewhere.url("/there")).unwrap();
    let dialect = with(vec![RefusalVerdict::Again(Some(there))]);
    assert!(fetch_speaking(&start(wants_new_token()), &dialect).unwrap() == body);
    assert_eq!(tokens(&elsewhere), vec![Some("new".to_owned()); 2]);
}

/// Returns the result of a transfer that breaks once, and the condition that its second request
/// has.
fn resumed(
    continuity: ContinuityProof,
    script: Script,
) -> (Result<Vec<u8>, SourceError>, Option<String>) {
    let origin = start(script);
    let result = fetch_with(&origin, |config| config.continuity = continuity);
    let header = origin.requests().get(1).and_then(|recorded| {
        let request = &recorded.request;
        let of = |name: &str| request.header(name).map(|value| format!("{name}: {value}"));
        of("if-match").or_else(|| of("if-range"))
    });
    (result, header)
}

#[test]
fn parts_are_joined_by_the_proof_that_the_source_requires() {
    let body = noise(2 << 20);
    let broken = || Script { faults: vec![Fault::CutAt(1 << 20)], ..Script::new(body.clone()) };
    for (continuity, expected) in [
        (ContinuityProof::IfRange, Some("if-range: \"v1\"")),
        (ContinuityProof::IfMatch, Some("if-match: \"v1\"")),
        (ContinuityProof::Immutable, None),
    ] {
        let (result, header) = resumed(continuity, broken());
        assert!(result.unwrap() == body);
        assert_eq!(header.as_deref(), expected);
    }
}

#[test]
fn a_changed_validator_is_an_error_unless_the_object_is_immutable() {
    let body = noise(2 << 20);
    let replaced = || Script {
        faults: vec![Fault::CutAt(1 << 20)],
        replaced: Some((1, testkit::origin::Object::new(body.clone(), Some("\"v2\"")))),
        ranges: testkit::origin::Ranges::Served,
        ..Script::new(body.clone())
    };
    let (result, _) = resumed(ContinuityProof::IfMatch, replaced());
    assert_eq!(result.unwrap_err().kind(), SourceErrorKind::Changed);
    let (result, _) = resumed(ContinuityProof::Immutable, replaced());
    assert!(result.unwrap() == body);
}
