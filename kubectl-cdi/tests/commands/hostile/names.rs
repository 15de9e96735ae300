//! Names that a server chooses: of files, in request paths, and in commands that users copy.

use serde_json::{Value, json};
use testkit::cases::check_all;

use crate::hostile::{Cluster, Laptop, UPLOADS};

/// Texts that would lead elsewhere as part of a path.
const ELSEWHERE: [&str; 6] =
    ["../../../secrets/x", "a/b/c", "x?watch=true", "..", "", "a%2f..%2fb"];

#[test]
fn a_uid_is_never_used_as_a_path() {
    let elsewhere = tempfile::tempdir().unwrap();
    let absolute = elsewhere.path().join("x").to_string_lossy().into_owned();
    let long = "a".repeat(65);
    let uids = [
        "../../../.bashrc.d/x",
        "../../../.bashrc.d/new",
        &absolute,
        "a/b/c",
        "",
        ".",
        "x\ny",
        "\u{202e}x",
        &long,
    ];
    check_all(uids, |uid| {
        let mut cluster = Cluster::harmless();
        cluster.claim["metadata"]["uid"] = json!(uid);
        let laptop = Laptop::new(cluster);
        let before = laptop.files();
        // Without the lines about progress, which appear after a second.
        let finished = laptop.upload("5s").arg("--quiet").run();
        assert!(laptop.files() == before, "something was changed");
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
        finished.assert_failure(7, " as the uid of pvc/disk: expected 1 to 64 letters");
        assert_eq!(laptop.left(), []);
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    });
}

#[test]
fn a_location_must_be_a_path_of_plain_letters() {
    let long = format!("{UPLOADS}/{}", "a".repeat(1000));
    let locations = [
        "/v1beta1/upload-resumable/$(touch${IFS}PWNED)",
        "/v1beta1/upload-resumable/a;touch",
        "/v1beta1/upload-resumable/../upload",
        "/v1beta1/upload-resumable/",
        "/v1beta1/upload-resumablex",
        "/v1beta1/upload-resumable/a?b#c",
        "https://example.org/v1beta1/upload-resumable/a1",
        &long,
    ];
    check_all(locations, |location| {
        let laptop =
            Laptop::new(Cluster { location: (*location).to_owned(), ..Cluster::harmless() });
        let before = laptop.files();
        let finished = laptop.upload("5s").run();
        assert!(laptop.files() == before, "something was changed");
        finished.assert_failure(7, "the upload proxy returned the location ");
        assert_eq!(laptop.left(), [], "a ledger with the words of the proxy");
        let requests = laptop.proxy.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
    });
}

/// Puts a name into a claim.
type Change = fn(&mut Value, &str);

#[test]
#[ignore = "slow: waits 25 s"]
fn names_lead_to_no_other_object() {
    fn annotate(claim: &mut Value, field: &str, name: &str) {
        claim["metadata"]["annotations"][format!("cdi.kubevirt.io/{field}")] = json!(name);
    }
    let fields: [(&str, Change); 4] = [
        ("pvcPrime", |claim, name| annotate(claim, "storage.populator.pvcPrime", name)),
        ("uploadPodName", |claim, name| annotate(claim, "storage.uploadPodName", name)),
        ("name", |claim, name| claim["metadata"]["name"] = json!(name)),
        ("storageClassName", |claim, name| {
            claim["status"]["phase"] = json!("Pending");
            claim["spec"]["storageClassName"] = json!(name);
        }),
    ];
    let cases = fields.iter().flat_map(|field| ELSEWHERE.map(|name| (field, name)));
    for ((field, change), name) in cases {
        let mut cluster = Cluster::harmless();
        annotate(&mut cluster.claim, "storage.pod.ready", "false");
        change(&mut cluster.claim, name);
        let laptop = Laptop::new(cluster);
        let before = laptop.files();
        let finished = laptop.upload("1s").run();
        finished.assert_failure(7, "pvc/disk is not ready after 1 s");
        assert!(laptop.files() == before, "something was changed");
        let known = ["/disk", "/config", "/cdi-upload-disk", "/events"];
        for (request, _) in laptop.api.requests() {
            let is_known = known.iter().any(|known| request.path().ends_with(known));
            let is_plain = !request.path().contains("//") && !request.path().contains("..");
            assert!(is_known && is_plain, "{field} {name:?}: {}", request.target);
        }
    }
}

#[test]
fn neither_a_token_nor_the_url_of_a_proxy_can_inject_a_command() {
    let token =
        "the cluster rejected a token for pvc/disk: the answer does not contain a valid token";
    let url = "CDIConfig says that the upload proxy is at ";
    let harmless = Cluster::harmless;
    let tokens = ["a'; touch PWNED; '", "a\nb", "$(touch PWNED)", "a b", "\u{202e}", "a\u{1b}[31m"]
        .map(|odd| (odd, Cluster { token: json!(odd), ..harmless() }, token));
    let urls = [
        "https://example.org/$(touch${IFS}PWNED)",
        "https://example.org/;touch",
        "https://example.org/a'b",
        "https://example.org/a&b",
        "https://user:secret@example.org/",
        "https://example.org/?a=b",
        "https://example.org/#a",
        "file:///etc/passwd",
    ]
    .map(|odd| (odd, Cluster { proxy_url: Some(odd.to_owned()), ..harmless() }, url));
    for (odd, cluster, sentence) in tokens.into_iter().chain(urls) {
        let laptop = Laptop::new(cluster);
        for program in [laptop.program("token pvc/disk"), laptop.upload("5s")] {
            let finished = program.run();
            finished.assert_failure(7, sentence);
            assert_eq!(finished.stdout, "", "{odd}");
        }
        assert_eq!(laptop.proxy.requests().len(), 0, "{odd}");
    }
}
