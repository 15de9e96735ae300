//! The command line: identities of this machine are used only at the clouds' own hosts, unless
//! the user lends them to others.

use testkit::disk;
use testkit::objects::service_account;
use testkit::origin::{Origin, Script};

use crate::place::{MIB, Place, SOURCE_FAILED};

fn store(status: Option<u16>) -> Origin {
    let refused = status.map(|status| ("/bucket/disk".to_owned(), (0, status)));
    Origin::start(Script {
        expires: refused.into_iter().collect(),
        ..Script::new(disk::content(1, MIB))
    })
    .unwrap()
}

/// The values of a header in all requests.
fn headers(store: &Origin, name: &str) -> Vec<Option<String>> {
    let header =
        |recorded: &testkit::origin::Recorded| recorded.request.header(name).map(str::to_owned);
    store.requests().iter().map(header).collect()
}

#[test]
fn keys_in_variables_are_for_amazon_unless_they_are_lent() {
    let place = Place::new();
    let platform = Origin::start(Script::new("")).unwrap();
    let import = |store: &Origin| {
        place.import("s3://bucket/disk").envs(&[
            ("AWS_ENDPOINT_URL", store.url("").as_str()),
            ("AWS_ACCESS_KEY_ID", "borrowedkey"),
            ("AWS_SECRET_ACCESS_KEY", "borrowedsecret"),
            ("AWS_SESSION_TOKEN", "borrowedtoken"),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", platform.url("").as_str()),
        ])
    };

    let public = store(None);
    place.assert_imports(import(&public), &disk::content(1, MIB), "a public object without keys");
    assert!(headers(&public, "authorization").iter().all(Option::is_none));

    let refusing = store(Some(403));
    let text = "127.0.0.1 was accessed without keys: give them with --user and --password-file";
    let finished = place.assert_refused(import(&refusing), SOURCE_FAILED, text);
    assert!(finished.stderr.contains("--ambient-identity"), "{}", finished.stderr);
    assert_eq!(headers(&refusing, "authorization"), [None]);
    assert!(platform.requests().is_empty());

    let lent = store(None);
    place.assert_imports(import(&lent).arg("--ambient-identity"), &disk::content(1, MIB), "lent");
    let authorization = headers(&lent, "authorization").swap_remove(0).unwrap();
    assert!(authorization.contains("Credential=borrowedkey/"), "{authorization}");
    assert_eq!(headers(&lent, "x-amz-security-token")[0].as_deref(), Some("borrowedtoken"));
}

#[test]
fn a_session_token_of_the_environment_is_not_combined_with_given_keys() {
    let (place, store) = (Place::new(), store(None));
    let program = place.import("s3://bucket/disk").args(place.as_user("givenkey", "givensecret"));
    let program = program.envs(&[
        ("AWS_ENDPOINT_URL", store.url("").as_str()),
        ("AWS_SESSION_TOKEN", "borrowedtoken"),
        ("AWS_REGION", "here"),
    ]);
    place.assert_imports(program, &disk::content(1, MIB), "given");
    let authorization = headers(&store, "authorization").swap_remove(0).unwrap();
    assert!(authorization.contains("Credential=givenkey/"), "{authorization}");
    assert!(authorization.contains("/here/s3/aws4_request"), "{authorization}");
    assert!(headers(&store, "x-amz-security-token").iter().all(Option::is_none));
}

#[test]
fn a_key_file_in_a_variable_is_for_google_unless_it_is_lent() {
    let (place, refusing) = (Place::new(), store(Some(401)));
    let (host, file) = (refusing.address().to_string(), place.write("key.json", service_account()));
    let import = || {
        place.import("gs://bucket/disk").envs(&[
            ("STORAGE_EMULATOR_HOST", &host),
            ("GOOGLE_APPLICATION_CREDENTIALS", &file),
            ("GCE_METADATA_HOST", &host),
        ])
    };
    let text =
        "127.0.0.1 was accessed without keys: name their file in GOOGLE_APPLICATION_CREDENTIALS";
    place.assert_refused(import(), SOURCE_FAILED, text);
    assert_eq!(headers(&refusing, "authorization"), [None]);

    place.assert_refused(import().arg("--ambient-identity"), SOURCE_FAILED, "401");
    let told = headers(&refusing, "authorization");
    assert!(told.last().unwrap().as_ref().unwrap().starts_with("Bearer ey"), "{told:?}");
}
