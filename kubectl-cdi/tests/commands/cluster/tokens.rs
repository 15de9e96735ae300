//! Tokens, from an aggregated API behind the real API server.

use std::sync::OnceLock;

use kubectl_cdi::cluster::ClusterError;
use testkit::cluster::tokens::TokenServer;
use testkit::cluster::users::Right;

use crate::cluster::{administrator, api, connect};

fn server() -> &'static TokenServer {
    static SERVER: OnceLock<TokenServer> = OnceLock::new();
    SERVER.get_or_init(|| api().serve_upload_tokens())
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn a_token_is_for_one_claim_and_needs_the_right() {
    let cluster = administrator("tokens").await;
    let server = server();
    let before = server.given();
    let token = cluster.request_token("disk").await.unwrap();
    assert_eq!(token.as_str().split('.').count(), 3, "a JWS");
    assert_eq!(server.given(), before + 1);

    let rights: [Right<'_>; 1] = [("upload.cdi.kubevirt.io", "uploadtokenrequests", &["create"])];
    let uploader = connect(api().user("uploader", &rights), "tokens").await;
    uploader.request_token("disk").await.unwrap();
    let nobody = connect(api().user("nobody", &[]), "tokens").await;
    let error = nobody.request_token("disk").await.unwrap_err();
    assert!(matches!(error, ClusterError::Denied { verb: "create", .. }), "{error}");
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn an_unavailable_token_api_is_reported() {
    let api = testkit::cluster::Cluster::start();
    drop(api.serve_upload_tokens());
    let cluster = connect(api.administrator(), "default").await;
    let error = cluster.request_token("disk").await.unwrap_err();
    assert!(error.may_pass(), "{error:?}");
    let said = error.to_string();
    assert!(
        said.starts_with(&format!("the API server at {} cannot answer now: ", api.address())),
        "{said}"
    );
}
