//! What the proxy needs of a cluster besides PVCs: names of services, the CA bundle, and its own
//! certificates.

use testkit::certs::Authority;
use testkit::https::{Request, Response};
use testkit::kube_api::{KubeApi, ready_pvc};
use testkit::upload_pod::Server;
use testkit::upload_proxy::{NAMESPACE, UploadProxy};
use testkit::upstream::{Script, Upstream};

use crate::contract::{BINARY, PROXY_ERROR};

fn post(proxy: &UploadProxy, server: &Server, pvc: &str) -> Response {
    let request = Request::post("/v1beta1/upload").header("Authorization", &proxy.bearer(pvc));
    server.exchange(&request, b"body")
}

/// Names of PVCs and of their services (contract, appendix A.2).
fn services() -> Vec<(String, String)> {
    let numbers = "123456789-".repeat(13);
    let long = "cdi-upload-import-long-name-dv-123456789-123456789-92423cc1-cdi";
    let a = |count| "a".repeat(count);
    let uid = "0b9c7c5e-6e0e-4a8e-9b1b-0f3f1f2e3d4c";
    vec![
        ("upload-test".into(), "cdi-upload-upload-test".into()),
        ("my.pvc".into(), "cdi-upload-my-pvc".into()),
        (format!("prime-{uid}"), format!("cdi-upload-prime-{uid}")),
        (a(52), format!("cdi-upload-{}", a(52))),
        (a(53), format!("cdi-upload-{}-e31485ef-cdi", a(39))),
        (a(242), format!("cdi-upload-{}-27e7dcce-cdi", a(39))),
        (a(243), "cdi-upload-8100677d".into()),
        (a(253), "cdi-upload-bbdff417".into()),
        (format!("import-long-name-dv-{numbers}1234567890"), long.into()),
        (format!("import-long-name-dv-{}1234567890", numbers.replace('-', ".")), long.into()),
    ]
}

#[test]
fn services_are_named_as_the_controller_names_them() {
    let proxy = UploadProxy::new(BINARY);
    let api = KubeApi::start(&proxy.cluster().pem());
    for (pvc, service) in services() {
        // This server has only this name, so TLS fails for every other one.
        let name = format!("{service}.{NAMESPACE}.svc");
        let upstream = Upstream::start(proxy.cluster(), &[name], vec![Script::echo()]);
        api.set_object(&pvc, ready_pvc(&pvc));
        let server = proxy.start_in_cluster(&api, Some(upstream.address()));
        let response = post(&proxy, &server, &pvc);
        assert_eq!(response.status, 200, "{pvc}: {response:?}");
    }
}

#[test]
fn a_certificate_of_another_server_is_a_bad_gateway() {
    let proxy = UploadProxy::new(BINARY);
    let api = KubeApi::start(&proxy.cluster().pem());
    api.set_object("disk", ready_pvc("disk"));
    for name in ["cdi-upload-other.default.svc", "cdi-upload-disk.other.svc", "disk.default.svc"] {
        let upstream = Upstream::start(proxy.cluster(), &[name.to_owned()], vec![Script::echo()]);
        let server = proxy.start_in_cluster(&api, Some(upstream.address()));
        let response = post(&proxy, &server, "disk");
        assert_eq!(response.status, 502, "{response:?}");
        assert!(response.text().starts_with(PROXY_ERROR), "{response:?}");
        assert_eq!(upstream.seen().len(), 0);
        let log = server.log();
        assert!(log.lines().any(|line| line.ends_with(" namespace=default pvc=disk")), "{log}");
    }
}

#[test]
fn a_proxy_without_its_files_answers_with_an_internal_error() {
    let stranger = Authority::new().unwrap().pem();
    for (case, bundle, missing, status) in [
        ("all is there", None, None, 200),
        ("an empty bundle", Some(""), None, 500),
        ("a bundle of something else", Some("hello"), None, 500),
        ("a bundle of another authority", Some(stranger.as_str()), None, 502),
        ("no client certificate", None, Some("client.crt"), 500),
        ("no client key", None, Some("client.key"), 500),
    ] {
        let proxy = UploadProxy::new(BINARY);
        let name = format!("cdi-upload-disk.{NAMESPACE}.svc");
        let upstream = Upstream::start(proxy.cluster(), &[name], vec![Script::echo()]);
        let own = proxy.cluster().pem();
        let api = KubeApi::start(bundle.unwrap_or(&own));
        api.set_object("disk", ready_pvc("disk"));
        if let Some(file) = missing {
            std::fs::remove_file(proxy.path(file)).unwrap();
        }
        let server = proxy.start_in_cluster(&api, Some(upstream.address()));
        let response = post(&proxy, &server, "disk");
        assert_eq!(response.status, status, "{case}: {response:?}\n{}", server.log());
        if status == 500 {
            response.assert_refused(500, "an administrator has to check");
            server.wait_for_line("Error creating http client");
        }
    }
}

#[test]
fn a_missing_config_map_is_an_internal_error_until_it_exists() {
    let proxy = UploadProxy::new(BINARY);
    let name = format!("cdi-upload-disk.{NAMESPACE}.svc");
    let upstream = Upstream::start(proxy.cluster(), &[name], vec![Script::echo()]);
    let api = KubeApi::start("");
    api.remove_ca_bundle();
    api.set_object("disk", ready_pvc("disk"));
    let server = proxy.start_in_cluster(&api, Some(upstream.address()));
    post(&proxy, &server, "disk").assert_refused(500, "an administrator has to check");
    api.set_ca_bundle(&proxy.cluster().pem());
    // A failure is not cached.
    let response = post(&proxy, &server, "disk");
    assert_eq!(response.status, 200, "{response:?}");
}

#[test]
fn a_proxy_without_a_valid_key_does_not_start() {
    let proxy = UploadProxy::new(BINARY);
    let api = KubeApi::start(&proxy.cluster().pem());
    for key in ["", "hello", &proxy.key().private_pem()] {
        let program = proxy.cluster_program(&api, None).env("APISERVER_PUBLIC_KEY", key);
        let finished = program.start().wait();
        assert_eq!(finished.code(), 255, "{key:?}: {}", finished.stderr);
        assert!(!finished.crashed(), "{}", finished.stderr);
        assert!(!finished.stderr.contains("PRIVATE KEY"), "{}", finished.stderr);
    }
}
