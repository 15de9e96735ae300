//! Secrets of a cloud, and the servers to which they are sent.

use testkit::adversary::{Adversary, Reply};
use testkit::certs::Authority;
use testkit::disk;
use testkit::gateway::Fault;
use testkit::openstack::script::{Cloud, PASSWORD, Script, TOKENS, catalog, image_path};
use testkit::origin::{self, Origin};

use super::{MIB, Place, assert_imports, assert_refused, assert_refuses, import};

#[test]
fn a_redirected_download_works_and_gets_no_token() {
    let raw = disk::content(1, MIB);
    let elsewhere = Origin::start(origin::Script::new(raw.clone())).unwrap();
    let led = Fault::Status(302, vec![("location", elsewhere.url("/bytes"))]);
    for faults in [vec![led.clone()], vec![Fault::Cut(MIB / 2), led]] {
        let place = Place::new();
        let cloud = Cloud::start(Script { faults, ..Script::new(raw.clone()) });
        assert_imports(&place, import(&place, &cloud), &raw);
    }
    let asked = elsewhere.requests();
    assert_eq!(asked.len(), 2);
    for seen in asked {
        assert_eq!(seen.request.header("x-auth-token"), None, "{seen:?}");
        assert!(!format!("{seen:?}").contains("token-"), "{seen:?}");
    }
}

#[test]
fn redirects_of_documents_are_not_followed() {
    let stranger = Adversary::start(|_, _| Reply::of("{}"));
    for (path, sentence) in [
        (TOKENS.to_owned(), "the identity service 127.0.0.1 gives no token"),
        (image_path(), "the image service 127.0.0.1 does not describe the image"),
    ] {
        for status in [301, 302, 307, 308] {
            let redirect = Reply::status(status, "").with("Location", stranger.url("/"));
            assert_refuses(&Cloud::start(Script::new("x").replying(&path, redirect)), sentence);
        }
    }
    assert!(stranger.requests().is_empty());
}

#[test]
fn the_password_goes_to_the_identity_service_only() {
    let raw = disk::content(1, MIB);
    let (place, cloud) = (Place::new(), Cloud::start(Script::new(raw.clone())));
    assert_imports(&place, import(&place, &cloud), &raw);
    for (request, body) in cloud.requests() {
        let is_login = request.path() == TOKENS;
        assert_eq!(body.contains(PASSWORD), is_login, "{request:?}");
        assert!(!format!("{request:?}").contains(PASSWORD), "{request:?}");
    }
}

#[test]
fn a_cloud_with_tls_cannot_name_an_image_service_without_tls() {
    let authority = Authority::new().unwrap();
    let tls = |script| Cloud::start_tls(script, authority.server_config().unwrap());
    let place = Place::new();
    let trusting = |cloud: &Cloud| import(&place, cloud).args(place.trusting(&authority));
    let raw = disk::content(1, MIB);
    let plain = Cloud::start(Script::new(raw.clone()));
    let url = format!("http://{}/image", plain.address());
    let catalog = catalog(&[("image", "public", "one", &url)]);
    let leading = tls(Script { catalog, ..Script::new(raw.clone()) });
    let sentence = "without TLS, where anybody on the path could replace the image";
    assert_refused(&place, trusting(&leading), sentence);
    assert!(plain.requests().is_empty());

    let cloud = tls(Script::new(raw.clone()));
    assert_refuses(&cloud, "its certificate is not signed by a trusted authority");
    assert!(cloud.requests().is_empty());
    assert_imports(&place, trusting(&cloud), &raw);
}

#[test]
fn a_password_in_the_reply_of_a_service_is_not_shown() {
    let said = format!(r#"{{"error":{{"message":"user migrator with {PASSWORD} is wrong"}}}}"#);
    let cloud = Cloud::start(Script::new("x").replying(TOKENS, Reply::status(401, said)));
    assert_refuses(&cloud, "refuses the user name or password: 401 Unauthorized");
}
