//! Redirects and proxies: where requests are sent, and what they contain there.

use fetch::BasicCredentials;
use fetch::http::parse_header;
use fetch::proxy::ProxyConfig;
use testkit::certs;
use testkit::forward_proxy::ForwardProxy;
use testkit::origin::Fault;

use super::*;

fn redirecting(pairs: &[(&str, &str)]) -> Script {
    Script {
        redirects: pairs
            .iter()
            .map(|(from, to)| ((*from).to_owned(), vec![(*to).to_owned()]))
            .collect(),
        ..Script::new("disk")
    }
}

#[test]
fn relative_and_absolute_locations_are_followed() {
    let other = start(Script::new("disk"));
    let absolute = other.url("/there#fragment");
    let origin =
        start(redirecting(&[("/disk.img", "/b/c"), ("/b/c", "d?x=1"), ("/b/d", &absolute)]));
    assert_eq!(fetch(&origin).unwrap(), b"disk");
    let targets: Vec<_> =
        origin.requests().into_iter().map(|recorded| recorded.request.target).collect();
    assert_eq!(targets, ["/disk.img", "/b/c", "/b/d?x=1"]);
    assert_eq!(other.requests()[0].request.target, "/there");
}

#[test]
fn ten_redirects_are_followed_and_eleven_are_not() {
    let hops: Vec<String> = (0..12).map(|hop| format!("/{hop}")).collect();
    let pairs: Vec<(&str, &str)> =
        hops.windows(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
    let origin = start(redirecting(&pairs));
    assert!(open(config(&origin.url("/1"))).is_ok());
    let error = open(config(&origin.url("/0?secret"))).err().unwrap().to_string();
    assert_eq!(error, format!("stopped after 10 redirects, the last one to {}", origin.url("/11")));
}

#[test]
fn a_redirect_loop_ends() {
    let origin = start(redirecting(&[("/disk.img", "/disk.img?again")]));
    let error = fetch(&origin).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("stopped after 10 redirects, the last one to {}", origin.url("/disk.img"))
    );
    assert_eq!(origin.requests().len(), 11);
}

#[test]
fn redirects_out_of_http_are_refused() {
    for location in ["file:///etc/passwd", "ftp://host/disk", "http://"] {
        let error = fetch(&start(redirecting(&[("/disk.img", location)]))).unwrap_err().to_string();
        assert!(error.contains("redirects to an address that cannot be used"), "{error}");
    }
}

#[test]
fn credentials_and_headers_stay_with_their_origin() {
    let body = noise(200_000);
    // The other origin breaks in the middle, so that the resuming request is checked too.
    let other = start(Script { faults: vec![Fault::CutAt(100_000)], ..Script::new(body.clone()) });
    let elsewhere = other.url("/disk.img");
    let origin = start(redirecting(&[("/disk.img", "/same"), ("/same", &elsewhere)]));
    let bytes = fetch_with(&origin, |config| {
        config.credentials = BasicCredentials::new("user", "password");
        config.headers = vec![
            parse_header("X-Secret: s", true).unwrap().unwrap(),
            parse_header("Cookie: c", false).unwrap().unwrap(),
        ];
    });
    assert_eq!(bytes.unwrap(), body);
    for recorded in origin.requests() {
        assert_eq!(recorded.request.header("authorization"), Some("Basic dXNlcjpwYXNzd29yZA=="));
        assert_eq!(recorded.request.header("x-secret"), Some("s"));
        assert_eq!(recorded.request.header("cookie"), Some("c"));
    }
    assert_eq!(other.requests().len(), 2);
    for recorded in other.requests() {
        for name in ["authorization", "x-secret", "cookie", "referer"] {
            assert_eq!(recorded.request.header(name), None, "{name}");
        }
        assert_eq!(recorded.request.header("user-agent"), Some("cdi-golang-importer"));
    }
}

#[test]
fn credentials_in_the_url_stay_with_their_origin() {
    let other = start(Script::new("disk"));
    let elsewhere = other.url("/");
    let origin = start(redirecting(&[("/disk.img", &elsewhere)]));
    let url = origin.url("/disk.img").replace("http://", "http://user:password@");
    open(config(&url)).unwrap();
    assert!(origin.requests()[0].request.header("authorization").is_some());
    assert_eq!(other.requests()[0].request.header("authorization"), None);
}

#[test]
fn a_resume_starts_at_the_last_redirect() {
    let body = noise(200_000);
    let mut script = redirecting(&[("/disk.img", "/signed")]);
    script.object.body = body.clone();
    script.faults = vec![Fault::CutAt(100_000)];
    let origin = start(script);
    assert_eq!(fetch(&origin).unwrap(), body);
    let paths: Vec<_> =
        origin.requests().into_iter().map(|recorded| recorded.request.target).collect();
    assert_eq!(paths, ["/disk.img", "/signed", "/signed"]);
}

#[test]
fn an_expired_redirect_is_requested_again() {
    let body = noise(200_000);
    let mut script = redirecting(&[("/disk.img", "/signed")]);
    script.object.body = body.clone();
    script.faults = vec![Fault::CutAt(100_000)];
    script.expires.insert("/signed".into(), (1, 403));
    let origin = start(script);
    // The new redirect leads to the same path, which has expired for good: an error…
    let error = fetch(&origin).unwrap_err().to_string();
    assert_eq!(error, "expected status code 206, got 403. Status: 403 Forbidden");
    let paths: Vec<_> =
        origin.requests().into_iter().map(|recorded| recorded.request.target).collect();
    assert_eq!(paths, ["/disk.img", "/signed", "/signed", "/disk.img", "/signed"]);

    // …and one that leads elsewhere is followed.
    let store = start(Script {
        expires: [("/old".to_owned(), (1, 403))].into(),
        faults: vec![Fault::CutAt(100_000)],
        ..Script::new(body.clone())
    });
    let (old, new) = (store.url("/old"), store.url("/new"));
    let mut script = redirecting(&[]);
    script.redirects.insert("/disk.img".into(), vec![old, new]);
    let origin = start(script);
    assert_eq!(fetch(&origin).unwrap(), body);
    let paths: Vec<_> =
        store.requests().into_iter().map(|recorded| recorded.request.target).collect();
    assert_eq!(paths, ["/old", "/old", "/new"]);
}

fn proxies(proxy: &ForwardProxy) -> ProxyConfig {
    proxies_at(&format!("http://pu:pp@{}", proxy.address()))
}

fn proxies_at(url: &str) -> ProxyConfig {
    ProxyConfig::from_env(|name| {
        name.ends_with("_PROXY").then(|| url.to_owned()).filter(|_| name != "NO_PROXY")
    })
    .unwrap()
}

#[test]
fn plain_http_is_sent_to_the_proxy_with_an_absolute_url() {
    let origin = start(Script::new("disk"));
    let proxy = ForwardProxy::start(origin.address()).unwrap();
    let mut through = config("http://origin.invalid/disk.img");
    network(&mut through).proxy = proxies(&proxy);
    assert_eq!(read_all(&mut *open(through).unwrap().open_body().unwrap()).unwrap(), b"disk");
    let seen = &proxy.requests()[0];
    assert_eq!(seen.target, "http://origin.invalid/disk.img");
    assert_eq!(seen.header("proxy-authorization"), Some("Basic cHU6cHA="));
    assert_eq!(seen.header("user-agent"), Some("cdi-golang-importer"));
}

#[test]
fn https_uses_a_tunnel_with_our_user_agent() {
    let authority = certs::Authority::new().unwrap();
    let origin =
        Origin::start_tls(Script::new("disk"), authority.server_config().unwrap()).unwrap();
    let proxy = ForwardProxy::start(origin.address()).unwrap();
    // Loopback is never proxied, and this name does not resolve, so only the proxy can reach it.
    let url = format!("https://{}/disk.img", certs::PROXIED_NAME);
    let mut through = config_with(&url, authority.client_config().unwrap());
    network(&mut through).proxy = proxies(&proxy);
    assert_eq!(read_all(&mut *open(through).unwrap().open_body().unwrap()).unwrap(), b"disk");
    let seen = &proxy.requests()[0];
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("CONNECT", "origin.invalid:443"));
    assert_eq!(seen.header("proxy-authorization"), Some("Basic cHU6cHA="));
    assert_eq!(seen.header("user-agent"), Some("cdi-golang-importer"));
    assert_eq!(origin.requests()[0].request.header("proxy-authorization"), None);
}

#[test]
fn socks_proxies_resolve_the_name_themselves() {
    let origin = start(Script::new("disk"));
    let proxy = ForwardProxy::start(origin.address()).unwrap();
    for scheme in ["socks5", "socks5h"] {
        let mut through = config("http://origin.invalid/disk.img");
        network(&mut through).proxy = proxies_at(&format!("{scheme}://{}", proxy.address()));
        assert_eq!(read_all(&mut *open(through).unwrap().open_body().unwrap()).unwrap(), b"disk");
    }
    for seen in proxy.requests() {
        assert_eq!((seen.method.as_str(), seen.target.as_str()), ("SOCKS5", "origin.invalid:80"));
    }
}
