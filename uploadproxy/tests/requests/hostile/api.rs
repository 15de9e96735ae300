//! Hostile answers of the API server about a PVC or the authorities.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use testkit::cases::check_all_by;
use testkit::fail::OrFail;
use testkit::https::Request;
use testkit::kube_api::{
    Answer, CONTENT_TYPE, POD_READY, PVC_PRIME, UPLOAD_TARGET, populated, pvc, ready_pvc,
};
use testkit::tokens::claims;
use testkit::upload_proxy::NAMESPACE;

use crate::hostile::{PATH, Scene};

/// Limit on the text that is sent to a client.
const SENTENCE_BYTES: usize = 8 << 10;

/// Returns answers about a PVC that are not PVCs, or never end.
#[rustfmt::skip]
fn hostile_answers() -> Vec<(&'static str, Answer)> {
    let now = Duration::ZERO;
    let json = |text: &str| Answer::json(text);
    let mut huge = ready_pvc("disk");
    huge["metadata"]["annotations"]["x"] = "LONG".into();
    // As an object, it would keep the API server busy for seconds: serde_json is not optimized
    // here.
    let huge = huge.to_string().replace("LONG", &"x".repeat(64 << 20));
    let head = b"HTTP/1.1 200 OK\r\n".to_vec();
    let numbers = "{\"metadata\":{\"name\":7,\"annotations\":{\"cdi.kubevirt.io/storage.upload.target\":1}}}";
    let long = [(UPLOAD_TARGET, ""), (POD_READY, "true"), (CONTENT_TYPE, &*"<b>'\"&".repeat(30_000))];
    vec![
        ("blanks without end", Answer::endless("{", " ", now)),
        ("an annotation without end", Answer::endless("{\"metadata\":{\"annotations\":{\"a\":\"", "x", now)),
        ("a list without end", Answer::endless("{\"metadata\":{\"finalizers\":[\"a\"", ",\"a\"", now)),
        ("a byte a second", Answer::endless("{", " ", Duration::from_secs(1))),
        ("nothing, ever", Answer::Silence),
        ("64 MiB", json(&huge)),
        ("depth", json(&format!("{}{}", "[".repeat(200_000), "]".repeat(200_000)))),
        ("HTML", json("<html>no</html>")),
        ("nothing", json("")),
        ("another kind", json("{\"kind\":\"List\",\"items\":[]}")),
        ("an array", json("[]")),
        ("numbers for text", json(numbers)),
        ("half of an object", Answer::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"metadata\"".to_vec())),
        ("heads without end", Answer::Endless { begin: head, piece: "X: y\r\n".repeat(1000).into(), pause: now }),
        ("interim answers without end",
         Answer::Endless { begin: Vec::new(), piece: "HTTP/1.1 103 Early\r\n\r\n".repeat(1000).into(), pause: now }),
        ("no HTTP", Answer::Bytes(b"SSH-2.0\r\n\r\n".to_vec())),
        ("a megabyte of words", Answer::Status(500, "InternalError", "<script>\r\n\0 ".repeat(100_000))),
        ("a long annotation", Answer::Object(pvc("disk", &long))),
    ]
}

/// Each answer is about a PVC of its own, so that they can come at the same time.
#[test]
#[ignore = "slow: waits 10 s"]
fn hostile_answers_about_a_pvc_are_refused_within_limits() {
    let scene = Scene::start();
    let elsewhere = TcpListener::bind("127.0.0.1:0").or_fail("a port");
    elsewhere.set_nonblocking(true).or_fail("a port");
    let address = elsewhere.local_addr().or_fail("a port");
    let mut answers = hostile_answers();
    let path = "/api/v1/namespaces/default/persistentvolumeclaims/other";
    for status in [301, 302, 303, 307, 308] {
        for location in [format!("http://{address}{path}"), path.to_owned()] {
            let moved = format!(
                "HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
            );
            answers.push(("a redirect", Answer::Bytes(moved.into())));
        }
    }
    std::thread::scope(|scope| {
        for (number, (what, answer)) in answers.into_iter().enumerate() {
            let (scene, pvc) = (&scene, format!("disk-{number}"));
            scene.api.set_pvc(&pvc, [answer]);
            scope.spawn(move || {
                let response = scene.post(&pvc);
                let (text, bytes) = (response.text(), response.body.len());
                assert_eq!(response.status, 503, "{what}: {bytes} bytes");
                assert!(bytes <= SENTENCE_BYTES, "{what}: {bytes} bytes of words");
                assert!(!text.contains(['<', '\0', '\n']), "{what}: {text:?}");
            });
        }
    });
    assert!(elsewhere.accept().is_err(), "a redirect was followed");
    assert_eq!(scene.upstream.seen().len(), 0);
    scene.assert_alive("behind hostile answers");
    let longest = scene.server.log().lines().map(str::len).max().or_fail("a log");
    assert!(longest <= SENTENCE_BYTES, "a line of {longest} bytes");
}

#[test]
fn the_content_of_a_pvc_or_token_cannot_lead_to_other_objects() {
    let scene = Scene::start();
    // The name in the answer differs from the requested one, which counts.
    let mut renamed = ready_pvc("other");
    renamed["metadata"]["namespace"] = "kube-system".into();
    scene.api.set_object("disk", renamed);
    assert_eq!(scene.post("disk").status, 200);
    assert_eq!(scene.upstream.seen().len(), 1);
    let annotations = |prime| [(PVC_PRIME, prime), (UPLOAD_TARGET, ""), (POD_READY, "true")];
    let long = "a".repeat(300);
    let primes = [
        "",
        ".",
        "..",
        "../other",
        "other/status",
        "other?x",
        "a.b/../../../secrets/x",
        "Other",
        "other ",
        "other:443",
        "ot\u{e4}her",
        &long,
    ];
    let names: Vec<_> = (0..primes.len()).map(|number| format!("prime-{number}")).collect();
    for (name, prime) in names.iter().zip(primes) {
        scene.api.set_object(name, populated(pvc(name, &annotations(prime))));
    }
    std::thread::scope(|scope| {
        for (name, prime) in names.iter().zip(primes) {
            let scene = &scene;
            scope.spawn(move || assert_eq!(scene.post(name).status, 503, "{prime:?}"));
        }
    });
    for (name, namespace) in [
        ("../../secrets/x", NAMESPACE),
        ("disk/status", NAMESPACE),
        ("disk?x=y", NAMESPACE),
        ("disk#", NAMESPACE),
        ("..", NAMESPACE),
        ("disk%2fstatus", NAMESPACE),
        ("Disk", NAMESPACE),
        ("disk\r\nX: y", NAMESPACE),
        ("disk", "../../api/v1/namespaces/default"),
        ("disk", "default/x"),
        ("disk", "a.b"),
        ("disk", "DEFAULT"),
    ] {
        let token = scene.proxy.key().sign("PS256", &claims(name, namespace));
        let request = Request::post(PATH).header("Authorization", &format!("Bearer {token}"));
        let response = scene.server.exchange(&request, b"x");
        assert!([400, 503].contains(&response.status), "{namespace}/{name}: {response:?}");
    }
    // A prime that names another prime is not followed further.
    scene.api.set_object("chain", populated(pvc("chain", &annotations("first"))));
    scene.api.set_object("first", populated(pvc("first", &[(PVC_PRIME, "other")])));
    scene.post("chain").assert(503, "PVC first is not an upload target");
    assert_eq!(scene.upstream.seen().len(), 1);
    let names = names.iter().map(String::as_str);
    scene.assert_only_read(&names.chain(["disk", "chain", "first"]).collect::<Vec<_>>());
}

#[test]
#[ignore = "slow: waits 12 s"]
fn hostile_answers_about_authorities_are_refused_within_limits() {
    let now = Duration::ZERO;
    let huge = format!("{{\"data\":{{\"ca-bundle.crt\":\"{}\"}}}}", "x".repeat(64 << 20));
    let answers = [
        Answer::endless("{", " ", now),
        Answer::endless("{", " ", Duration::from_secs(1)),
        Answer::Silence,
        Answer::json("<html>no</html>"),
        Answer::json(&huge),
    ];
    check_all_by(answers.len(), 0..answers.len(), |number| {
        let scene = Scene::start();
        scene.api.set_config_map(answers[*number].clone());
        // Several at once: none may wait for the one before.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(scene.post("disk").status, 500));
            }
        });
        scene.api.set_ca_bundle(&scene.proxy.cluster().pem());
        // A failure is cached only for a moment.
        std::thread::sleep(Duration::from_millis(1500));
        scene.assert_alive("behind hostile authorities");
    });
}

#[test]
fn many_requests_with_one_token_cost_the_api_server_little() {
    const QUESTIONS: usize = 200;
    let scene = Scene::start();
    let head = Request::new("HEAD", "/v1beta1/upload-async")
        .header("Authorization", &scene.proxy.bearer("disk"));
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut connection = scene.server.connect();
                for _ in 0..QUESTIONS / 8 {
                    assert_eq!(connection.exchange(&head, b"").or_fail("an answer").status, 200);
                }
            });
        }
    });
    let (seconds, asked) = (started.elapsed().as_secs_f64(), scene.api.reads_of("disk"));
    assert!(asked as f64 <= 3.0 + 5.0 * seconds, "{asked} in {seconds} s");
}

#[test]
#[ignore = "slow: waits 10 s"]
fn one_token_cannot_take_the_places_of_others() {
    const MOST: usize = 32;
    let scene = Scene::start();
    let not_ready = pvc("disk", &[(UPLOAD_TARGET, ""), (POD_READY, "false")]);
    scene.api.set_object("disk", not_ready);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let posts: Vec<_> =
            (0..MOST + 8).map(|_| scope.spawn(|| scene.post("disk").status)).collect();
        scene.assert_alive("beside waiting uploads");
        posts.into_iter().map(|post| post.join().unwrap()).collect()
    });
    let count = |status| statuses.iter().filter(|other| **other == status).count();
    assert_eq!((count(503), count(429)), (MOST, 8), "{statuses:?}");
    let looks = scene.api.reads_of("disk");
    // A few reads a second altogether, not for each upload.
    assert!(looks <= 50, "{looks} reads");
    assert_eq!(scene.post("other").status, 200);
}

#[test]
#[ignore = "alone: measures response times"]
fn requests_that_hang_delay_no_other_upload() {
    let scene = Scene::start();
    scene.assert_alive("before");
    scene.api.set_config_map(Answer::Silence);
    let late = Answer::Late(Duration::from_secs(9), ready_pvc("disk"));
    let names: Vec<_> = (0..60).map(|number| format!("slow-{number}")).collect();
    std::thread::scope(|scope| {
        for (number, name) in names.iter().enumerate() {
            scene.api.set_pvc(name, [if number % 2 == 0 { Answer::Silence } else { late.clone() }]);
            let scene = &scene;
            scope.spawn(move || assert!([502, 503].contains(&scene.post(name).status)));
        }
        // The lookups take ten seconds, and each upload has to ask the API server again. Then the
        // authorities are no longer fresh, but may be used for two minutes.
        for _ in 0..12 {
            std::thread::sleep(Duration::from_secs(1));
            let started = Instant::now();
            scene.assert_alive("beside requests that hang");
            assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
        }
    });
}
