//! Hostile answers of the API server about a PVC or the authorities.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use testkit::fail::OrFail;
use testkit::https::Request;
use testkit::kube_api::{
    Answer, CONTENT_TYPE, POD_READY, PVC_PRIME, UPLOAD_TARGET, populated, pvc, ready_pvc,
};

use crate::hostile::{GROWTH_BYTES, Scene, WAIT, endless, json};

/// Limit on the text that is sent to a client.
const SENTENCE_BYTES: usize = 8 << 10;

/// Returns a ready PVC with an annotation of this length.
fn huge(name: &str, bytes: usize) -> Answer {
    let mut pvc = ready_pvc(name);
    pvc["metadata"]["annotations"]["x"] = "LONG".into();
    // As an object, it would keep the API server busy for seconds: serde_json is not optimized here.
    json(&pvc.to_string().replace("LONG", &"x".repeat(bytes)))
}

#[test]
#[ignore = "slow: waits 16 s"]
fn hostile_answers_about_a_pvc_are_refused_within_limits_of_time_and_memory() {
    let scene = Scene::start();
    scene.assert_alive("before");
    let before = scene.rss();
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let now = Duration::ZERO;
    for (what, answer) in [
        ("blanks without end", endless("{", " ", now)),
        (
            "an annotation without end",
            endless("{\"metadata\":{\"annotations\":{\"a\":\"", "x", now),
        ),
        ("a list without end", endless("{\"metadata\":{\"finalizers\":[\"a\"", ",\"a\"", now)),
        ("a byte a second", endless("{", " ", Duration::from_secs(1))),
        ("64 MiB", huge("disk", 64 << 20)),
        ("depth", json(&deep)),
        ("HTML", json("<html>no</html>")),
        ("nothing", json("")),
        ("another kind", json("{\"kind\":\"List\",\"items\":[]}")),
        ("an array", json("[]")),
        (
            "numbers for text",
            json(
                "{\"metadata\":{\"name\":7,\"annotations\":{\"cdi.kubevirt.io/storage.upload.target\":1}}}",
            ),
        ),
        (
            "half of an object",
            Answer::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"metadata\"".to_vec()),
        ),
        (
            "heads without end",
            Answer::Endless {
                begin: b"HTTP/1.1 200 OK\r\n".to_vec(),
                piece: "X: y\r\n".repeat(1000).into_bytes(),
                pause: now,
            },
        ),
        (
            "interim answers without end",
            Answer::Endless {
                begin: Vec::new(),
                piece: "HTTP/1.1 103 Early\r\n\r\n".repeat(1000).into_bytes(),
                pause: now,
            },
        ),
        ("no HTTP", Answer::Bytes(b"SSH-2.0\r\n\r\n".to_vec())),
        (
            "a megabyte of words",
            Answer::Status(500, "InternalError", "<script>\r\n\0 ".repeat(100_000)),
        ),
    ] {
        scene.set_pvc("disk", answer);
        let started = Instant::now();
        let response = scene.post("disk");
        let waited = started.elapsed();
        let grown = scene.peak().saturating_sub(before);
        println!(
            "{what}: {} after {waited:?}, {} bytes of words, {grown} bytes of memory",
            response.status,
            response.body.len()
        );
        assert_eq!(response.status, 503, "{what}: {} bytes", response.body.len());
        assert!(waited < WAIT + Duration::from_secs(3), "{what}: {waited:?}");
        assert!(
            response.body.len() <= SENTENCE_BYTES,
            "{what}: {} bytes of words",
            response.body.len()
        );
        assert!(!response.text().contains(['<', '\0', '\n']), "{what}: {:?}", response.text());
        assert!(grown < GROWTH_BYTES, "{what}: {grown} bytes");
        scene.assert_alive(what);
    }
    let longest = scene.server.log().lines().map(str::len).max().or_fail("a log");
    assert!(longest <= SENTENCE_BYTES, "a line of {longest} bytes");
}

#[test]
fn many_requests_with_endless_answers_take_no_more_memory() {
    let scene = Scene::start();
    scene.assert_alive("before");
    let before = scene.rss();
    scene.api.set_pvc(
        "disk",
        [endless("{\"metadata\":{\"annotations\":{\"a\":\"", "x", Duration::ZERO)],
    );
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| assert!([429, 503].contains(&scene.post("disk").status)));
        }
    });
    let grown = scene.peak().saturating_sub(before);
    println!("{grown} bytes");
    assert!(grown < GROWTH_BYTES, "{grown} bytes");
    scene.assert_alive("behind");
}

#[test]
fn annotations_of_users_cannot_fill_answers_and_logs() {
    let scene = Scene::start();
    let long = "<b>'\"&".repeat(30_000);
    let annotations = [(UPLOAD_TARGET, ""), (POD_READY, "true"), (CONTENT_TYPE, &*long)];
    scene.api.set_object("disk", pvc("disk", &annotations));
    let response = scene.post("disk");
    assert_eq!(response.status, 503);
    assert!(response.text().contains("upload content-type &lt;b&gt;&#39;"), "{}", response.text());
    assert!(response.body.len() <= SENTENCE_BYTES, "{} bytes of words", response.body.len());
    let longest = scene.server.log().lines().map(str::len).max().or_fail("a log");
    assert!(longest <= SENTENCE_BYTES, "a line of {longest} bytes");
}

#[test]
fn redirects_of_the_api_server_are_not_followed() {
    let scene = Scene::start();
    let elsewhere = TcpListener::bind("127.0.0.1:0").or_fail("a port");
    elsewhere.set_nonblocking(true).or_fail("a port");
    let address = elsewhere.local_addr().or_fail("a port");
    for status in [301, 302, 303, 307, 308] {
        let path = "/api/v1/namespaces/default/persistentvolumeclaims/other";
        for location in [format!("http://{address}{path}"), path.to_owned()] {
            let answer = format!(
                "HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
            );
            scene.set_pvc("disk", Answer::Bytes(answer.into_bytes()));
            let response = scene.post("disk");
            assert_eq!(response.status, 503, "{status} {location}: {response:?}");
        }
    }
    assert!(elsewhere.accept().is_err(), "a redirect was followed");
    assert_eq!(scene.upstream.seen().len(), 0);
}

#[test]
#[ignore = "slow: waits 4 s"]
fn the_content_of_a_pvc_cannot_lead_to_other_objects() {
    let scene = Scene::start();
    let annotations = |prime| [(PVC_PRIME, prime), (UPLOAD_TARGET, ""), (POD_READY, "true")];
    // The name in the answer differs from the requested one, which counts.
    let mut renamed = ready_pvc("other");
    renamed["metadata"]["namespace"] = "kube-system".into();
    scene.set_object("disk", renamed);
    let response = scene.post("disk");
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(scene.upstream.seen().len(), 1);
    let long = "a".repeat(300);
    for prime in [
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
    ] {
        scene.set_object("disk", populated(pvc("disk", &annotations(prime))));
        let response = scene.post("disk");
        assert_eq!(response.status, 503, "{prime:?}: {response:?}");
    }
    // A prime that names another prime is not followed further.
    scene.set_object("disk", populated(pvc("disk", &annotations("first"))));
    scene.api.set_object("first", populated(pvc("first", &[(PVC_PRIME, "other")])));
    let response = scene.post("disk");
    response.assert(503, "PVC first is not an upload target");
    let known = |request: &String| {
        request.contains("/cdiconfigs")
            || request.contains("/configmaps/")
            || ["disk", "other", "first"].iter().any(|name| {
                request.split('?').next()
                    == Some(&format!(
                        "GET /api/v1/namespaces/default/persistentvolumeclaims/{name}"
                    ))
            })
    };
    let requests = scene.api.requests();
    let odd: Vec<_> = requests.iter().filter(|request| !known(request)).collect();
    assert!(odd.is_empty(), "{odd:?}");
}

#[test]
#[ignore = "slow: waits 28 s"]
fn hostile_answers_about_authorities_are_refused_within_limits_of_time_and_memory() {
    let now = Duration::ZERO;
    for (what, answer) in [
        ("blanks without end", endless("{", " ", now)),
        ("a byte a second", endless("{", " ", Duration::from_secs(1))),
        ("nothing, ever", Answer::Silence),
        ("HTML", json("<html>no</html>")),
        (
            "64 MiB",
            json(&format!("{{\"data\":{{\"ca-bundle.crt\":\"{}\"}}}}", "x".repeat(64 << 20))),
        ),
    ] {
        let scene = Scene::start();
        let before = scene.rss();
        scene.api.set_config_map(answer);
        // Several at once: none may wait for the one before.
        let started = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(scene.post("disk").status, 500, "{what}"));
            }
        });
        let (waited, grown) = (started.elapsed(), scene.peak().saturating_sub(before));
        println!("{what}: {waited:?}, {grown} bytes");
        assert!(waited < WAIT + Duration::from_secs(3), "{what}: {waited:?}");
        assert!(grown < GROWTH_BYTES, "{what}: {grown} bytes");
        scene.api.set_ca_bundle(&scene.proxy.cluster().pem());
        // A failure is cached only for a moment.
        std::thread::sleep(Duration::from_millis(1500));
        scene.assert_alive(what);
    }
}

#[test]
#[ignore = "slow: waits 12 s"]
fn a_request_for_authorities_that_hangs_delays_no_upload() {
    let scene = Scene::start();
    scene.assert_alive("before");
    scene.api.set_config_map(Answer::Silence);
    // A bundle that was read counts as fresh for ten seconds, and may be used for two minutes.
    std::thread::sleep(WAIT + Duration::from_secs(1));
    for _ in 0..3 {
        scene.assert_alive("beside a ConfigMap that does not come");
    }
}

#[test]
fn thousands_of_requests_with_one_token_cost_the_api_server_little() {
    const QUESTIONS: usize = 600;
    let scene = Scene::start();
    scene.assert_alive("before");
    let reads = || scene.api.reads_of("disk");
    let before = reads();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let head = Request::new("HEAD", "/v1beta1/upload-async")
                    .header("Authorization", &scene.proxy.bearer("disk"));
                let mut connection = scene.server.connect();
                for _ in 0..QUESTIONS / 8 {
                    assert_eq!(connection.exchange(&head, b"").or_fail("an answer").status, 200);
                }
            });
        }
    });
    let (seconds, asked) = (started.elapsed().as_secs_f64(), reads() - before);
    println!("{QUESTIONS} questions in {seconds} s, {asked} of the API server");
    assert!(asked as f64 <= 2.0 + 5.0 * seconds, "{asked} in {seconds} s");
    scene.assert_alive("behind");
}

#[test]
#[ignore = "slow: waits 10 s"]
fn one_token_cannot_take_the_places_of_others() {
    const MOST: usize = 32;
    let scene = Scene::start();
    let not_ready = pvc("disk", &[(UPLOAD_TARGET, ""), (POD_READY, "false")]);
    scene.set_object("disk", not_ready);
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

/// Creates other PVCs, which have no upload servers.
fn others(scene: &Scene, count: usize, answer: &Answer) -> Vec<String> {
    let names: Vec<_> = (0..count).map(|number| format!("slow-{number}")).collect();
    for name in &names {
        scene.api.set_pvc(name, [answer.clone()]);
    }
    names
}

#[test]
#[ignore = "slow: waits 23 s"]
fn slow_lookups_of_other_pvcs_delay_no_upload() {
    let scene = Scene::start();
    scene.assert_alive("before");
    let late = |seconds| Answer::Late(Duration::from_secs(seconds), ready_pvc("disk"));
    for (what, answer) in [("hang", Answer::Silence), ("take nine seconds", late(9))] {
        let names = others(&scene, 60, &answer);
        std::thread::scope(|scope| {
            for name in &names {
                scope.spawn(|| assert!([502, 503].contains(&scene.post(name).status)));
            }
            // All of them are waiting, and each of the uploads below has to ask the API server
            // again.
            for _ in 0..6 {
                std::thread::sleep(Duration::from_secs(1));
                scene.assert_alive(&format!("beside 60 lookups that {what}"));
            }
        });
    }
    // A slow answer is used like any other.
    scene.set_pvc("disk", late(2));
    let response = scene.post("disk");
    assert_eq!(response.status, 200, "{response:?}");
}

#[test]
#[ignore = "slow: waits 10 s"]
fn many_large_answers_take_no_more_memory() {
    let scene = Scene::start();
    scene.assert_alive("before");
    let before = scene.rss();
    // Almost the largest object that is allowed, which never ends.
    let begin = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{{\"metadata\":{{\"annotations\":{{\"a\":\"{}",
        "x".repeat(2_000_000)
    );
    let answer = Answer::Endless {
        begin: begin.into_bytes(),
        piece: b"x".to_vec(),
        pause: Duration::from_secs(1),
    };
    let names = others(&scene, 90, &answer);
    std::thread::scope(|scope| {
        for name in &names {
            scope.spawn(|| assert_eq!(scene.post(name).status, 503));
        }
        for _ in 0..6 {
            // The answers grow in real time, in another process.
            std::thread::sleep(Duration::from_secs(1));
            scene.assert_alive("beside large answers");
        }
    });
    let grown = scene.peak().saturating_sub(before);
    println!("{grown} bytes");
    assert!(grown < GROWTH_BYTES, "{grown} bytes");
}
