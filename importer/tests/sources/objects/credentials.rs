//! Credentials of a workload: those that the environment leads to, and those that expire.

use stream::error::SourceErrorKind;
use testkit::origin::{Origin, Script};

use super::*;

/// The access key ids with which the requests were signed.
fn key_ids(setup: &Setup) -> Vec<Option<String>> {
    let key_id = |header: String| {
        let (_, rest) = header.split_once("Credential=").unwrap();
        rest.split('/').next().unwrap().to_owned()
    };
    setup.sent("authorization").into_iter().map(|header| header.map(key_id)).collect()
}

fn document(key_id: &str) -> String {
    format!(
        "{{\"AccessKeyId\": \"{key_id}\", \"SecretAccessKey\": \"{SECRET_KEY}\", \"Token\": \"token\", \
          \"Expiration\": \"2099-01-01T00:00:00Z\"}}"
    )
}

#[test]
#[ignore = "server: object stores"]
fn a_workload_token_is_exchanged_again_when_the_keys_expire() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "eyJ.of.a.test").unwrap();
    let answer = |key_id: &str| {
        let keys = format!(
            "<AccessKeyId>{key_id}</AccessKeyId><SecretAccessKey>{SECRET_KEY}</SecretAccessKey>\
             <SessionToken>token</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>"
        );
        let result = format!(
            "<AssumeRoleWithWebIdentityResult><Credentials>{keys}</Credentials></AssumeRoleWithWebIdentityResult>"
        );
        let document = format!(
            "<AssumeRoleWithWebIdentityResponse>{result}</AssumeRoleWithWebIdentityResponse>"
        );
        Fault::Answer(200, Vec::new(), document)
    };
    let plan = Plan { matching: |_| true, ..Plan::of(vec![answer("FIRST"), answer("SECOND")]) };
    let sts = Gateway::start(MOTO.address(), plan).unwrap();
    let url = sts.url("");
    let variables = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.to_str().unwrap()),
        ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/importer"),
        ("AWS_ENDPOINT_URL_STS", &url),
    ];
    let faults = vec![Fault::Cut(1_000_000), refusal(403, "ExpiredToken", "")];
    let setup = Setup::new(&MOTO, "web-identity", faults);
    assert!(setup.read_with(&environment(&variables)).unwrap() == setup.content);
    assert_eq!(key_ids(&setup), ["FIRST", "FIRST", "SECOND"].map(|id| Some(id.to_owned())));
    assert!(setup.sent("x-amz-security-token").iter().all(Option::is_some));
    let asked = &sts.requests()[0].request.target;
    for part in ["Action=AssumeRoleWithWebIdentity", "importer", "WebIdentityToken=eyJ.of.a.test"] {
        assert!(asked.contains(part), "{asked}");
    }
}

#[test]
#[ignore = "server: object stores"]
fn expired_keys_of_the_user_are_not_renewed() {
    let faults = vec![Fault::Cut(1_000_000), refusal(403, "ExpiredToken", "")];
    let setup = Setup::new(&MOTO, "expired", faults);
    let error = setup.read().unwrap_err().to_string();
    assert!(error.contains("ExpiredToken: In so many words."), "{error}");
    assert_eq!(setup.gateway.requests().len(), 2);
}

#[test]
#[ignore = "server: object stores"]
fn an_unreachable_credential_service_is_a_temporary_error_and_a_missing_token_is_not() {
    let [nobody] = testkit::ports::free();
    let url = format!("http://{nobody}/v1/credentials");
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "token-of-the-pod").unwrap();
    let variables = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.to_str().unwrap()),
    ];
    let once = Network {
        retry_policy: RetryPolicy { retries: Some(0), ..environment(&variables).retry_policy },
        ..environment(&variables)
    };
    let setup = Setup::new(&MOTO, "away", Vec::new());
    let error = setup.open_with(&once).err().unwrap();
    assert_eq!(error.kind(), SourceErrorKind::Io, "{error}");
    assert!(
        error.to_string().contains("no credentials: ")
            && error.to_string().contains("connection refused"),
        "{error}"
    );

    std::fs::remove_file(&token).unwrap();
    let error = setup.open_with(&once).err().unwrap();
    assert_eq!(error.kind(), SourceErrorKind::Invalid, "{error}");
}

#[test]
#[ignore = "server: object stores"]
fn a_container_gets_its_keys_from_its_agent() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "token-of-the-pod").unwrap();
    let agent = Origin::start(Script {
        required_header: Some(("authorization".to_owned(), "token-of-the-pod".to_owned())),
        ..Script::new(document(ACCESS_KEY))
    })
    .unwrap();
    let url = agent.url("/v1/credentials");
    let variables = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.to_str().unwrap()),
    ];
    let setup = Setup::new(&MOTO, "container", Vec::new());
    assert!(setup.read_with(&environment(&variables)).unwrap() == setup.content);
    assert_eq!(key_ids(&setup), [Some(ACCESS_KEY.to_owned())]);
}

#[test]
#[ignore = "server: object stores"]
fn the_metadata_service_is_asked_only_after_an_anonymous_refusal() {
    let text = |text: &str| Fault::Answer(200, Vec::new(), text.to_owned());
    let answers = vec![text("session"), text("role"), text(&document(ACCESS_KEY))];
    let plan = Plan { matching: |_| true, ..Plan::of(answers) };
    let machine = Gateway::start(S3S.address(), plan).unwrap();
    let variables = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", &*machine.url(""))];

    let setup = Setup::public("public");
    assert!(setup.read_with(&environment(&variables)).unwrap() == setup.content);
    assert_eq!(machine.requests().len(), 0);

    let setup = Setup::new(&S3S, "machine", Vec::new());
    // This store does not know the session token, which is signed like every header of Amazon's.
    assert!(setup.read_with(&environment(&variables)).unwrap() == setup.content);
    assert_eq!(key_ids(&setup), [None, Some(ACCESS_KEY.to_owned())]);
    assert_eq!(machine.requests().len(), 3);
}

#[test]
#[ignore = "server: object stores"]
fn malformed_keys_are_refused_before_anything_is_sent() {
    let setup = Setup::new(&S3S, "line-break", Vec::new());
    for variables in [
        [("AWS_ACCESS_KEY_ID", "key\n"), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)].as_slice(),
        &[
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
            ("AWS_SESSION_TOKEN", "tok\u{0}en"),
        ],
    ] {
        let error = setup.open_with(&environment(variables)).err().unwrap().to_string();
        assert!(error.contains("is there a line break"), "{error}");
    }
    assert_eq!(setup.gateway.requests().len(), 0);
}
