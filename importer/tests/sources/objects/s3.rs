//! Features of S3: signatures, regions, versions, and checksums of several kinds.

use std::sync::LazyLock;

use datapath::digest::{DigestAlgorithm, RunningDigest};
use datapath::error::SourceErrorKind;
use sources::objects::AddressingStyle;

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
fn without_keys_nothing_is_signed() {
    let setup = Setup::public("anonymous");
    let nobody = environment(&[("AWS_EC2_METADATA_DISABLED", "true")]);
    assert!(setup.read_with(&nobody).unwrap() == setup.content);
    assert_eq!(setup.sent("authorization"), [None]);

    let setup = Setup::new(&S3S, "anonymous", Vec::new());
    let error = setup.open_with(&nobody).err().unwrap();
    assert_eq!(error.kind(), SourceErrorKind::Status(403), "{error}");
    assert_eq!(setup.gateway.requests().len(), 1);
}

#[test]
#[ignore = "server: object stores"]
fn anonymous_access_ignores_the_keys() {
    let setup = Setup::public("nobody");
    let options = ObjectOptions { anonymous: true, ..ObjectOptions::default() };
    let source = sources::s3::open(&setup.url(), &Arc::new(access(Kind::Moto)), &options).unwrap();
    assert!(read_all(&source).unwrap() == setup.content);
    assert_eq!(setup.sent("authorization"), [None]);
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
fn the_command_line_names_bucket_and_key() {
    let setup = Setup::new(&S3S, "addressing", Vec::new());
    let access = Network {
        policy: policy(&[("AWS_ENDPOINT_URL", &setup.gateway.url("")), ("AWS_REGION", "here")]),
        ..access(Kind::S3s)
    };
    let options = ObjectOptions { addressing: AddressingStyle::Bucket, ..ObjectOptions::default() };
    let url = format!("s3://{BUCKET}/{}", setup.key);
    let source = sources::s3::open(&url, &Arc::new(access), &options).unwrap();
    assert!(read_all(&source).unwrap() == setup.content);
    assert!(setup.sent("authorization")[0].as_ref().unwrap().contains("/here/s3/"));
}

/// Stores an object in a bucket with versions. Returns the id of the version.
fn put_version(key: &str, content: &[u8]) -> String {
    let answer = MOTO.send("PUT", &format!("versions/{key}"), &[], content).to_lowercase();
    let (_, rest) = answer.split_once("x-amz-version-id: ").unwrap();
    rest.lines().next().unwrap().trim().to_owned()
}

fn versioned_bucket() {
    static MADE: LazyLock<()> = LazyLock::new(|| {
        MOTO.create_bucket("versions");
        let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
        MOTO.send("PUT", "versions?versioning", &[], enabled.as_bytes());
    });
    LazyLock::force(&MADE);
}

#[test]
#[ignore = "server: object stores"]
fn a_version_can_be_named() {
    versioned_bucket();
    let (old, new) = (noise(3), noise(4));
    let version = put_version("named", &old);
    put_version("named", &new);
    let url = format!("http://{}/versions/named", MOTO.address());
    for (url, content) in [(format!("{url}?versionId={version}"), old), (url, new)] {
        let source = open(Kind::Moto, &url, &access(Kind::Moto)).unwrap();
        assert!(read_all(&*source).unwrap() == content, "{url}");
    }
}

#[test]
#[ignore = "server: object stores"]
fn a_read_stays_with_the_version_that_was_found() {
    versioned_bucket();
    let content = noise(5);
    let version = put_version("pinned", &content);
    let gateway = Gateway::start(MOTO.address(), Plan::of(vec![Fault::Cut(10_000)])).unwrap();
    let source = open(Kind::Moto, &gateway.url("/versions/pinned"), &access(Kind::Moto)).unwrap();
    put_version("pinned", &noise(6));
    assert!(read_all(&*source).unwrap() == content);
    let resumed = &gateway.requests()[1].request;
    assert_eq!(resumed.target, format!("/versions/pinned?versionId={version}"));
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
fn checksums_that_the_server_keeps_are_verified() {
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
}

#[test]
#[ignore = "server: object stores"]
fn composite_checksums_are_not_compared() {
    let setup = Setup::new(&MOTO, "composite", Vec::new());
    announce(&setup, DigestAlgorithm::Crc32, "-3");
    let source = setup.open().unwrap();
    assert!(!source.has_own_digest());
    assert!(read_all(&*source).unwrap() == setup.content);
}
