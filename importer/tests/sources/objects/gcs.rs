//! Features of Google Cloud Storage: generations, tokens, and a CRC of every object.

use stream::error::SourceErrorKind;
use testkit::objects::service_account;

use super::*;

#[test]
#[ignore = "server: object stores"]
fn the_crc_of_the_service_is_verified() {
    let faults = vec![Fault::None, Fault::Corrupt(1_500_000), Fault::Short(1_000_000)];
    let setup = Setup::new(&GCS, "crc", faults);
    assert!(setup.open().unwrap().has_own_digest());
    for _ in 0..2 {
        let error = setup.read().unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Digest);
        let expected = format!("\"{BUCKET}/{}\": the received bytes have crc32c:", setup.key);
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}

#[test]
#[ignore = "server: object stores"]
fn an_object_is_read_as_it_is_stored_and_resumed_in_the_same_generation() {
    let setup = Setup::new(&GCS, "generation", vec![Fault::Cut(1_000_000)]);
    setup.assert_read();
    let requests = setup.gateway.requests();
    assert!(!requests[0].request.target.contains('?'));
    assert!(requests[1].request.target.contains("?generation="));
    assert_eq!(setup.sent("accept-encoding"), vec![Some("gzip".to_owned()); 2]);
}

#[test]
#[ignore = "server: object stores"]
fn a_service_account_signs_its_own_token() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sa.json");
    std::fs::write(&file, service_account()).unwrap();

    let content = noise(7);
    GCS.put_with("private", "disk", &[], &content);
    let url = format!("http://{}/private/disk", GCS.address());
    let open = |key_file, anonymous| {
        let options = ObjectOptions { key_file, anonymous, ..ObjectOptions::default() };
        stores::gcs::open(&url, &Arc::new(access(Kind::Gcs)), &options)
    };
    let source = open(Some(file.clone()), false).unwrap();
    assert!(read_all(&source).unwrap() == content);

    for nobody in [open(None, false), open(Some(file), true)] {
        assert_eq!(
            nobody.err().unwrap().to_string(),
            "could not get gcs object: \"private/disk\": AuthenticationRequired: Authentication required."
        );
    }
    let error = open(Some(folder.path().join("none.json")), false).err().unwrap().to_string();
    assert!(error.starts_with("no credentials: ") && error.contains("none.json"), "{error}");
}
