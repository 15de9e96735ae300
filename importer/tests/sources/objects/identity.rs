//! The command line: identities of this machine are used only at the clouds' own hosts, unless
//! the user lends them to others.

use std::path::Path;

use testkit::origin::{Origin, Script};
use testkit::process::{Finished, Program};

use super::*;

/// Imports `url` with these variables and arguments.
fn import(folder: &Path, url: &str, env: &[(&str, &str)], arguments: &[&str]) -> Finished {
    let program = Program::new(crate::BINARY)
        .args(["import", "--force"])
        .args(arguments)
        .arg(url)
        .arg(folder.join("disk.img"));
    let program = env.iter().fold(program, |program, (name, value)| program.env(name, *value));
    program.start().wait()
}

fn store(status: Option<u16>) -> Origin {
    let refused = status.map(|status| ("/bucket/disk".to_owned(), (0, status)));
    Origin::start(Script { expires: refused.into_iter().collect(), ..Script::new(noise(1)) })
        .unwrap()
}

/// The values of a header in all requests.
fn headers(store: &Origin, name: &str) -> Vec<Option<String>> {
    let requests = store.requests();
    let header =
        |recorded: &testkit::origin::Recorded| recorded.request.header(name).map(str::to_owned);
    requests.iter().map(header).collect()
}

#[test]
fn keys_in_variables_are_for_amazon_unless_they_are_lent() {
    let folder = tempfile::tempdir().unwrap();
    let platform = Origin::start(Script::new("")).unwrap();
    let run = |store: &Origin, arguments: &[&str]| {
        let (endpoint, metadata) = (store.url(""), platform.url(""));
        let env = [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", "borrowedkey"),
            ("AWS_SECRET_ACCESS_KEY", "borrowedsecret"),
            ("AWS_SESSION_TOKEN", "borrowedtoken"),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.as_str()),
        ];
        import(folder.path(), "s3://bucket/disk", &env, arguments)
    };

    let public = store(None);
    run(&public, &[]).assert_success("a public object without keys");
    assert!(headers(&public, "authorization").iter().all(Option::is_none));

    let refusing = store(Some(403));
    let finished = run(&refusing, &[]);
    finished.assert_failure(
        3,
        "127.0.0.1 was accessed without keys: give them with --user and --password-file",
    );
    assert!(finished.stderr.contains("--ambient-identity"), "{}", finished.stderr);
    assert_eq!(headers(&refusing, "authorization"), [None]);
    assert!(platform.requests().is_empty());

    let lent = store(None);
    run(&lent, &["--ambient-identity"]).assert_success("lent");
    assert!(
        headers(&lent, "authorization")[0].as_ref().unwrap().contains("Credential=borrowedkey/")
    );
    assert_eq!(headers(&lent, "x-amz-security-token")[0].as_deref(), Some("borrowedtoken"));
}

#[test]
fn a_session_token_of_the_environment_is_not_combined_with_given_keys() {
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    std::fs::write(&password, "givensecret").unwrap();
    let store = store(None);
    let endpoint = store.url("");
    let env = [("AWS_ENDPOINT_URL", endpoint.as_str()), ("AWS_SESSION_TOKEN", "borrowedtoken")];
    let given = ["--user", "givenkey", "--password-file", password.to_str().unwrap()];
    import(folder.path(), "s3://bucket/disk", &env, &given).assert_success("given");
    assert!(headers(&store, "authorization")[0].as_ref().unwrap().contains("Credential=givenkey/"));
    assert!(headers(&store, "x-amz-security-token").iter().all(Option::is_none));
}

#[test]
fn a_key_file_in_a_variable_is_for_google_unless_it_is_lent() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("account.json");
    std::fs::write(&file, gcs::service_account()).unwrap();
    let refusing = store(Some(401));
    let host = refusing.address().to_string();
    let env = [
        ("STORAGE_EMULATOR_HOST", host.as_str()),
        ("GOOGLE_APPLICATION_CREDENTIALS", file.to_str().unwrap()),
        ("GCE_METADATA_HOST", host.as_str()),
    ];
    let finished = import(folder.path(), "gs://bucket/disk", &env, &[]);
    finished.assert_failure(3, "127.0.0.1 was accessed without keys: give them with --key-file");
    assert_eq!(headers(&refusing, "authorization"), [None]);

    import(folder.path(), "gs://bucket/disk", &env, &["--ambient-identity"])
        .assert_failure(3, "401");
    let told = headers(&refusing, "authorization");
    assert!(told.last().unwrap().as_ref().unwrap().starts_with("Bearer ey"), "{told:?}");
}
