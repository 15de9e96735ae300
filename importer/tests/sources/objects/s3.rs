//! Features of S3: signatures, regions, versions, and checksums of several kinds.

use stream::digest::{DigestAlgorithm, RunningDigest};
use stream::error::SourceErrorKind;

use super::*;

#[test]
#[ignore = "server: object stores"]
fn a_wrong_secret_is_reported_with_the_error_of_the_server() {
    let setup = Setup::new(&S3S, "signature", Vec::new());
    let wrong = Network {
        credentials: BasicCredentials::new(ACCESS_KEY, "another secret"),
        ..access(Kind::S3s)
    };
    let error = setup.open_with(&wrong).err().unwrap().to_string();
    let expected =
        format!("could not get s3 object: \"{BUCKET}/{}\": SignatureDoesNotMatch", setup.key);
    assert!(error.starts_with(&expected), "{error}");
    assert!(!error.contains("another secret"), "{error}");
}

#[test]
#[ignore = "server: object stores"]
fn without_keys_and_in_anonymous_access_nothing_is_signed() {
    let nobody = environment(&[("AWS_EC2_METADATA_DISABLED", "true")]);
    for (access, anonymous) in [(&nobody, false), (&access(Kind::Moto), true)] {
        let setup = Setup::public("anonymous");
        let options = ObjectOptions { anonymous, ..ObjectOptions::default() };
        let source = stores::s3::open(&setup.url(), &Arc::new(access.clone()), &options).unwrap();
        assert!(read_all(&source).unwrap() == setup.content);
        assert_eq!(setup.sent("authorization"), [None]);
    }
    let setup = Setup::new(&S3S, "anonymous", Vec::new());
    let error = setup.open_with(&nobody).err().unwrap();
    assert_eq!(error.kind(), SourceErrorKind::Status(403), "{error}");
    assert_eq!(setup.gateway.requests().len(), 1);
}

#[test]
#[ignore = "server: object stores"]
fn a_wrong_region_is_corrected_once() {
    let malformed = || refusal(400, "AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>");
    let setup = Setup::new(&S3S, "region", vec![malformed(), Fault::Cut(1000)]);
    setup.assert_read();
    let regions: Vec<_> = setup.sent("authorization").into_iter().flatten().collect();
    assert!(regions[0].contains("/127/s3/aws4_request"), "{regions:?}");
    assert!(regions[1].contains("/eu-west-1/s3/aws4_request"), "{regions:?}");
    assert!(regions[2].contains("/eu-west-1/s3/aws4_request"), "{regions:?}");

    let setup = Setup::new(&S3S, "region", vec![malformed(), malformed()]);
    let error = setup.open().err().unwrap().to_string();
    assert!(error.ends_with("AuthorizationHeaderMalformed: In so many words."), "{error}");
    assert_eq!(setup.gateway.requests().len(), 2);
}

#[test]
#[ignore = "server: object stores"]
fn an_overloaded_store_is_asked_again() {
    let faults = vec![
        refusal(503, "SlowDown", ""),
        Fault::Cut(1_000_000),
        // The status alone would make this an error.
        refusal(400, "RequestTimeout", ""),
        refusal(500, "InternalError", ""),
    ];
    let setup = Setup::new(&S3S, "overload", faults);
    setup.assert_read();
    assert_eq!(setup.gateway.requests().len(), 5);
}

/// Stores an object in a bucket with versions. Returns the id of the version.
fn put_version(key: &str, content: &[u8]) -> String {
    let answer = MOTO.send("PUT", &format!("versions/{key}"), &[], content).to_lowercase();
    let (_, rest) = answer.split_once("x-amz-version-id: ").unwrap();
    rest.lines().next().unwrap().trim().to_owned()
}

#[test]
#[ignore = "server: object stores"]
fn a_version_can_be_named_and_a_read_stays_with_the_one_that_was_found() {
    MOTO.create_bucket("versions");
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    MOTO.send("PUT", "versions?versioning", &[], enabled.as_bytes());
    let (old, new) = (noise(3), noise(4));
    let version = put_version("disk", &old);
    let gateway = Gateway::start(MOTO.address(), Plan::of(vec![Fault::Cut(10_000)])).unwrap();
    let url = gateway.url("/versions/disk");
    let opened = open(Kind::Moto, &url, &access(Kind::Moto)).unwrap();
    put_version("disk", &new);
    assert!(read_all(&*opened).unwrap() == old);
    let resumed = &gateway.requests()[1].request;
    assert_eq!(resumed.target, format!("/versions/disk?versionId={version}"));
    for (url, content) in [(format!("{url}?versionId={version}"), old), (url, new)] {
        let source = open(Kind::Moto, &url, &access(Kind::Moto)).unwrap();
        assert!(read_all(&*source).unwrap() == content, "{url}");
    }
}

/// Stores the object again, with a checksum that the server keeps. `parts` is the ending of the
/// checksum of an object that was uploaded in parts.
fn announce(setup: &Setup, algorithm: DigestAlgorithm, parts: &str) {
    use base64::Engine;
    let mut digest = RunningDigest::new(algorithm);
    digest.update(&setup.content);
    let hex = digest.finish_digest().split_once(':').unwrap().1.to_owned();
    let bytes: Vec<u8> = (0..hex.len() / 2)
        .map(|nth| u8::from_str_radix(&hex[2 * nth..2 * nth + 2], 16).unwrap())
        .collect();
    let text = base64::prelude::BASE64_STANDARD.encode(bytes);
    let name = algorithm.name();
    let headers = [
        format!("x-amz-sdk-checksum-algorithm: {}", name.to_uppercase()),
        format!("x-amz-checksum-{name}: {text}{parts}"),
    ];
    MOTO.put_with(BUCKET, &setup.key, &[&headers[0], &headers[1]], &setup.content);
}

#[test]
#[ignore = "server: object stores"]
fn checksums_that_the_server_keeps_of_whole_objects_are_verified() {
    for algorithm in [
        DigestAlgorithm::Crc32,
        DigestAlgorithm::Crc32c,
        DigestAlgorithm::Crc64Nvme,
        DigestAlgorithm::Sha1,
        DigestAlgorithm::Sha256,
    ] {
        let faults = vec![Fault::Cut(1_000_000), Fault::None, Fault::Corrupt(2_999_999)];
        let setup = Setup::new(&MOTO, &format!("checksum-{algorithm}"), faults);
        announce(&setup, algorithm, "");
        let source = setup.open().unwrap();
        assert!(source.has_own_digest(), "{algorithm}");
        assert!(read_all(&*source).unwrap() == setup.content);

        let error = setup.read().unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Digest);
        let expected = format!("\"{BUCKET}/{}\": the received bytes have {algorithm}:", setup.key);
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
    // A checksum of checksums of parts says nothing about the bytes.
    let setup = Setup::new(&MOTO, "composite", Vec::new());
    announce(&setup, DigestAlgorithm::Crc32, "-3");
    let source = setup.open().unwrap();
    assert!(!source.has_own_digest());
    assert!(read_all(&*source).unwrap() == setup.content);
}
