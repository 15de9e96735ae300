//! Tests that hold for every object store.

use std::time::Instant;

use datapath::error::SourceErrorKind;
use testkit::certs::Authority;
use testkit::forward_proxy::ForwardProxy;

use super::*;

#[test]
#[ignore = "server: object stores"]
fn objects_have_a_length_and_ranges() {
    for_every_store(|store| {
        let setup = Setup::new(store, "whole", Vec::new());
        let source = setup.open().unwrap();
        assert_eq!(source.total_bytes(), Some(LENGTH as u64), "{:?}", store.kind());
        assert_eq!(source.name(), setup.url());
        assert!(source.is_ranged(), "{:?}", store.kind());
        for (start, end) in [(0, 1), (1_234_567, 1_300_000), (LENGTH - 1, LENGTH)] {
            let read = source.read_range(start as u64..end as u64).unwrap();
            assert!(read == setup.content[start..end], "{:?} {start}", store.kind());
        }
        assert!(read_all(&*source).unwrap() == setup.content, "{:?}", store.kind());
        // The probe, the three ranges and the body, each of which is requested once.
        assert_eq!(setup.gateway.requests().len(), 5, "{:?}", store.kind());
    });
}

#[test]
#[ignore = "server: object stores"]
fn cuts_cost_less_than_one_percent() {
    for_every_store(|store| {
        for percent in [10, 50, 90] {
            let first = (LENGTH * percent / 100) as u64;
            let faults = vec![Fault::Cut(first), Fault::Cut(1), Fault::Cut(1000)];
            let setup = Setup::new(store, &format!("cut-{percent}"), faults);
            setup.assert_read();
            assert_eq!(setup.gateway.requests().len(), 4);
            let sent = setup.gateway.body_bytes();
            assert!(sent < LENGTH as u64 * 101 / 100, "{sent} bytes sent for {LENGTH}");
            assert!(setup.sent("if-match").iter().skip(1).all(Option::is_some));
        }
    });
}

#[test]
#[ignore = "server: object stores"]
fn an_overloaded_store_is_asked_again() {
    let busy = || refusal(503, "SlowDown", "");
    for_every_store(|store| {
        let faults = vec![
            busy(),
            Fault::Cut(1_000_000),
            busy(),
            Fault::Status(503, Vec::new()),
            Fault::Status(429, vec![("retry-after", "1".to_owned())]),
            Fault::Cut(1),
            refusal(500, "InternalError", ""),
        ];
        let setup = Setup::new(store, "overload", faults);
        let started = Instant::now();
        setup.assert_read();
        assert!(
            started.elapsed() >= Duration::from_secs(1),
            "the store asked for a pause of one second"
        );
        assert_eq!(setup.gateway.requests().len(), 8);
    });
}

#[test]
#[ignore = "server: object stores"]
fn a_response_that_ends_early_is_resumed() {
    for_every_store(|store| {
        let setup = Setup::new(store, "short", vec![Fault::Cut(1000), Fault::Short(1_000_000)]);
        setup.assert_read();
    });
}

#[test]
#[ignore = "server: object stores"]
fn an_object_that_was_replaced_is_never_joined_with_the_old_one() {
    for_every_store(|store| {
        let setup = Setup::new(store, "replaced", vec![Fault::Cut(10_000)]);
        let source = setup.open_and_replace(10_000, &noise(1));
        let error = read_all(&*source).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("the object changed during the transfer: "), "{text}");
        assert!(text.ends_with("Start the import again"), "{text}");
    });
}

#[test]
#[ignore = "server: object stores"]
fn missing_objects_and_buckets_are_reported_with_the_error_of_the_store() {
    for_every_store(|store| {
        for (path, code) in [
            (format!("{BUCKET}/tests/none"), "NoSuchKey"),
            ("no-such-bucket/a".to_owned(), "NoSuch"),
        ] {
            let url = format!("http://{}/{path}", store.address());
            let error = open(store.kind(), &url, &access(store.kind())).err().unwrap();
            let protocol = if store.kind() == Kind::Gcs { "gcs" } else { "s3" };
            let expected = format!("could not get {protocol} object: \"{path}\": {code}");
            assert!(error.to_string().starts_with(&expected), "{error}");
            assert_eq!(error.kind(), SourceErrorKind::Status(404));
        }
    });
}

#[test]
#[ignore = "server: object stores"]
fn only_trusted_certificates_are_accepted() {
    let authority = Authority::new().unwrap();
    for_every_store(|store| {
        let setup = Setup::behind(store, "tls", |store| {
            Gateway::start_tls(store.address(), Plan::default(), authority.server_config().unwrap())
                .unwrap()
        });
        let started = Instant::now();
        let error = setup.open().err().unwrap();
        assert!(error.to_string().contains("certificate"), "{error}");
        assert!(
            started.elapsed() < Duration::from_secs(3),
            "an untrusted certificate must not be retried"
        );
        let trusting = Network { tls: authority.client_config().unwrap(), ..access(store.kind()) };
        assert!(setup.read_with(&trusting).unwrap() == setup.content, "{:?}", store.kind());
    });
}

#[test]
#[ignore = "server: object stores"]
fn a_proxy_is_used() {
    for_every_store(|store| {
        let setup = Setup::new(store, "proxied", Vec::new());
        let proxy = ForwardProxy::start(setup.gateway.address()).unwrap();
        let variable =
            |name: &str| (name == "HTTP_PROXY").then(|| format!("http://{}", proxy.address()));
        let through = Network {
            proxy: sources::proxy::ProxyConfig::from_env(variable).unwrap(),
            ..access(store.kind())
        };
        // Other host names would be taken for those of buckets.
        let url = format!("http://s3.amazonaws.com/{BUCKET}/{}", setup.key);
        let source = open(store.kind(), &url, &through).unwrap();
        assert!(read_all(&*source).unwrap() == setup.content, "{:?}", store.kind());
        assert_eq!(proxy.requests().len(), 1);
    });
}

#[test]
#[ignore = "server: object stores"]
fn several_connections_deliver_the_object_despite_a_cut() {
    for_every_store(|store| {
        let setup =
            Setup::new(store, "connections", vec![Fault::None, Fault::None, Fault::Cut(5000)]);
        let four = Network { connections: NonZeroUsize::new(4), ..access(store.kind()) };
        assert!(setup.read_with(&four).unwrap() == setup.content, "{:?}", store.kind());
    });
}

#[test]
#[ignore = "server: object stores"]
fn keys_with_odd_characters_are_requested_unchanged() {
    let content = noise(2);
    for_every_store(|store| {
        for key in
            ["with space/plus+plus", "ümläut/日本", "a=b&c;d,e@f:g!h'(i)*[j]~k", "per%cent%41"]
        {
            store.put(key, &content);
            // S3's endpoints decode what is percent-encoded; those of Google do not.
            let written = match store.kind() {
                Kind::Gcs => key.to_owned(),
                _ => key.replace('%', "%25"),
            };
            let url = format!("http://{}/{BUCKET}/{written}", store.address());
            let source = open(store.kind(), &url, &access(store.kind()));
            let source = source.unwrap_or_else(|error| panic!("{:?} {key}: {error}", store.kind()));
            assert!(read_all(&*source).unwrap() == content, "{:?} {key}", store.kind());
        }
    });
}
