//! Every method on every path, for every certificate and state of the server.

use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use testkit::cases::check_all;
use testkit::certs::{Authority, KeyKind, Offer};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::https::{Connection, Request, Response};
use testkit::upload_pod::{CLIENT_NAME, Server, UploadPod};
use testkit::wait;

use crate::contract::{MIB, assert_logged, pod};

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

const PATHS: [(&str, Kind); 22] = [
    ("/v1beta1/upload", Kind::Image),
    ("/v1alpha1/upload", Kind::Image),
    ("/v1beta1/upload-async", Kind::AsyncImage),
    ("/v1alpha1/upload-async", Kind::AsyncImage),
    ("/v1beta1/upload-form", Kind::Form),
    ("/v1alpha1/upload-form", Kind::Form),
    ("/v1beta1/upload-form-async", Kind::AsyncForm),
    ("/v1alpha1/upload-form-async", Kind::AsyncForm),
    ("/v1beta1/upload-archive", Kind::Archive),
    ("/v1alpha1/upload-archive", Kind::Archive),
    ("/healthz", Kind::Health),
    ("/readyz", Kind::Health),
    ("/", Kind::Unknown),
    ("/healthz/", Kind::Unknown),
    ("/v1beta1/upload/", Kind::Unknown),
    ("/v1beta1/upload-archive-async", Kind::Unknown),
    ("/v1/upload", Kind::Unknown),
    ("/v1beta1/Upload", Kind::Unknown),
    ("//v1beta1/upload", Kind::Unknown),
    ("/v1beta2/upload", Kind::Unknown),
    ("/v1alpha1/status", Kind::Unknown),
    ("/v1alpha1/upload-resumable/x", Kind::Unknown),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Image,
    AsyncImage,
    Form,
    AsyncForm,
    Archive,
    Health,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Certificate {
    Absent,
    OtherName,
    Right,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Busy,
    Done,
}

/// A row of the table.
struct Row {
    method: &'static str,
    path: &'static str,
    kind: Kind,
    certificate: Certificate,
    state: State,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, path, certificate, state, .. } = self;
        write!(f, "{method} {path}, certificate {certificate:?}, server {state:?}")
    }
}

impl Row {
    fn all(state: State) -> Vec<Self> {
        let mut rows = Vec::new();
        for (path, kind) in PATHS {
            for method in METHODS {
                for certificate in [Certificate::Absent, Certificate::OtherName, Certificate::Right]
                {
                    rows.push(Self { method, path, kind, certificate, state });
                }
            }
        }
        rows
    }

    /// Returns the expected status, which follows from the order of the checks, and words of the
    /// body.
    fn expected(&self) -> (u16, &'static str) {
        use Kind::{AsyncForm, AsyncImage, Form, Health, Unknown};
        match (self.kind, self.method) {
            (Health, _) => (200, "OK"),
            (Unknown, _) => (404, "404 page not found\n"),
            (AsyncImage | AsyncForm, "HEAD") => (200, ""),
            (AsyncImage | AsyncForm, "GET" | "PATCH" | "DELETE" | "OPTIONS") => {
                (404, "this path accepts only POST, PUT, HEAD")
            }
            (_, "GET" | "HEAD" | "PATCH" | "DELETE" | "OPTIONS") => {
                (404, "this path accepts only POST, PUT")
            }
            _ if self.certificate != Certificate::Right => (401, "--cert"),
            _ if self.state == State::Busy => (503, "another upload is in progress"),
            _ if self.state == State::Done => (409, "accepts no other"),
            // The server accepts the request, and then refuses its empty body.
            (Form | AsyncForm, _) => (400, ""),
            _ => (
                400,
                "Saving stream failed: Unable to obtain information about data source: \
                 could not process image header: EOF",
            ),
        }
    }

    /// Compares an answer with the expected one. The contract leaves the text for an empty form or
    /// archive open.
    fn check(&self, response: &Response) {
        let (status, body) = self.expected();
        assert_eq!(response.status, status, "{response:?}");
        let taken_on = status == 400;
        if !(taken_on && matches!(self.kind, Kind::Form | Kind::AsyncForm | Kind::Archive)) {
            let body = if self.method == "HEAD" { "" } else { body };
            assert!(response.text().contains(body), "{response:?}");
        }
        // Only an answer to HEAD has no body.
        assert_eq!(response.body.is_empty(), self.method == "HEAD", "{response:?}");
        assert_eq!(
            response.header("allow").is_some(),
            status == 404 && self.kind != Kind::Unknown,
            "{response:?}"
        );
        if !response.body.is_empty() {
            let content_type = response.header("content-type").unwrap_or_default();
            assert!(content_type.starts_with("text/plain"), "{response:?}");
        }
    }
}

/// TLS settings of clients with each certificate.
struct Clients {
    absent: Arc<ClientConfig>,
    other: Arc<ClientConfig>,
    right: Arc<ClientConfig>,
}

impl Clients {
    fn new(pod: &UploadPod) -> Self {
        let other =
            pod.authority().client("somebody else", KeyKind::Ecdsa).or_fail("a certificate");
        let config = |identity| {
            let offer = Offer { identity, ..Offer::default() };
            pod.authority().client_config_for(&offer).or_fail("TLS")
        };
        Self {
            absent: config(None),
            other: config(Some(&other)),
            right: config(Some(pod.client())),
        }
    }

    fn connect(&self, server: &Server, certificate: Certificate) -> Connection {
        server.connect_as(match certificate {
            Certificate::Absent => &self.absent,
            Certificate::OtherName => &self.other,
            Certificate::Right => &self.right,
        })
    }
}

fn check_rows(server: &Server, clients: &Clients, rows: Vec<Row>) {
    check_all(rows, |row| {
        let request = Request::new(row.method, row.path);
        // A form without a boundary would be refused whether or not the server accepts uploads.
        let request = match row.kind {
            Kind::Form | Kind::AsyncForm => {
                request.header("Content-Type", "multipart/form-data; boundary=b")
            }
            _ => request,
        };
        let mut connection = clients.connect(server, row.certificate);
        let response = connection.exchange(&request, &[]).or_fail("an answer");
        row.check(&response);
    });
}

#[test]
fn an_idle_server_answers_by_path_method_and_certificate() {
    let pod = pod(&[]);
    let server = pod.start();
    let clients = Clients::new(&pod);
    let (attempts, others) =
        Row::all(State::Idle).into_iter().partition(|row| row.expected().0 == 400);
    check_rows(&server, &clients, others);
    // One after another, because each of these occupies the server.
    let attempts: Vec<Row> = attempts;
    assert_eq!(attempts.len(), 20);
    for row in attempts {
        check_rows(&server, &clients, vec![row]);
    }
    assert_eq!(pod.data_names(), [""; 0]);
    let finished = server.post_last("/v1beta1/upload", &disk::content(1, MIB));
    assert_logged(&finished.stderr, &["could not process image header: EOF"]);
}

#[test]
fn a_busy_server_refuses_only_another_upload() {
    let pod = pod(&[]);
    let server = pod.start();
    let clients = Clients::new(&pod);
    let content = disk::content(1, MIB);
    let mut upload = server.begin_upload("/v1beta1/upload", content.len(), &content[..1000]);
    check_rows(&server, &clients, Row::all(State::Busy));
    upload.send(&content[1000..]).unwrap();
    upload.response().unwrap().assert_uploaded();
    let finished = server.wait();
    finished.assert_success("the upload that made the server busy");
    assert_logged(&finished.stderr, &["Got concurrent upload request"]);
    assert_eq!(std::fs::read(pod.disk()).unwrap(), content);
}

#[test]
fn requests_in_flight_at_the_end_of_the_upload_are_answered() {
    let pod = pod(&[]);
    let server = pod.start();
    let clients = Clients::new(&pod);
    let content = disk::content(1, MIB);
    let mut upload = server.begin_upload("/v1beta1/upload", content.len(), &content[..1000]);
    let mut rows = Row::all(State::Done);
    rows.retain(|row| row.path.starts_with("/v1beta1") && ["HEAD", "POST"].contains(&row.method));
    let mut waiting: Vec<_> = rows
        .into_iter()
        .map(|row| {
            let request = Request::new(row.method, row.path).length(0).bytes();
            let (front, back) = request.split_at(request.len() - 2);
            let mut connection = clients.connect(&server, row.certificate);
            connection.send(front).unwrap();
            (row, connection, back.to_vec())
        })
        .collect();
    upload.send(&content[1000..]).unwrap();
    upload.response().unwrap().assert_uploaded();
    for (row, connection, back) in &mut waiting {
        connection.send(back).or_fail(&*row);
        let response = connection.response_to(row.method).or_fail(&*row);
        row.check(&response);
    }
    drop(waiting);
    let finished = server.wait();
    finished.assert_success("a server with late requests");
    assert_logged(&finished.stderr, &["Got upload request after already done"]);
}

#[test]
fn a_certificate_of_another_authority_fails_the_handshake() {
    let pod = pod(&[]);
    let server = pod.start();
    let stranger = Authority::new().unwrap().client(CLIENT_NAME, KeyKind::Ecdsa).unwrap();
    let offer = Offer { identity: Some(&stranger), ..Offer::default() };
    let config = pod.authority().client_config_for(&offer).unwrap();
    // In TLS 1.3 a client learns only after its own handshake that the server rejects its
    // certificate.
    let answer = Connection::open(server.address(), &config)
        .and_then(|mut connection| connection.exchange(&Request::new("GET", "/healthz"), &[]));
    assert!(answer.is_err(), "{answer:?}");
    server.post("/v1beta1/upload", &disk::content(1, MIB)).assert_uploaded();
}

#[test]
fn refused_clients_are_logged_at_most_once_a_second() {
    let pod = pod(&[]);
    let server = pod.start();
    let config = pod.authority().client_config_for(&Offer::default()).unwrap();
    let refuse = || {
        let refused = server.connect_as(&config).exchange(&Request::post("/v1beta1/upload"), b"x");
        refused.unwrap().assert_refused(401, "--cert");
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
    };
    let started = Instant::now();
    (0..50).for_each(|_| refuse());
    // The last round is at least a second later, so that its lines count the others.
    thread::sleep(Duration::from_secs(1));
    refuse();
    let most = 2 + started.elapsed().as_secs();
    for message in ["refused a request from ", "TLS handshake error from "] {
        let lines = || -> Vec<String> {
            let log = server.log();
            log.lines().filter(|line| line.contains(message)).map(str::to_owned).collect()
        };
        let is_counted = || lines().iter().any(|line| line.contains(" omitted="));
        wait::until(|| format!("a count of {message:?}: {:#?}", lines()), is_counted);
        assert!(lines().len() as u64 <= most, "{:#?}", lines());
    }
}

#[test]
fn a_common_name_may_be_longer_than_64_characters_and_have_slashes() {
    let name = format!("{}/{}-source", "namespace/".repeat(10), "n".repeat(90));
    for kind in [KeyKind::Ecdsa, KeyKind::Rsa] {
        let pod = UploadPod::with_keys(crate::BINARY, &name, kind);
        let server = pod.start();
        let prefix = pod.authority().client(&name[..64], kind).unwrap();
        let offer = Offer { identity: Some(&prefix), ..Offer::default() };
        let config = pod.authority().client_config_for(&offer).unwrap();
        let refused = server.connect_as(&config).exchange(&Request::post("/v1beta1/upload"), b"x");
        refused.unwrap().assert_refused(401, "--cert");
        server.post_last("/v1beta1/upload", &disk::content(1, MIB));
    }
}

#[test]
fn status_needs_the_client_certificate_and_metrics_do_not() {
    let pod = pod(&[]);
    let server = pod.start();
    let clients = Clients::new(&pod);
    let get = |path, certificate| {
        let mut connection = clients.connect(&server, certificate);
        connection.exchange(&Request::new("GET", path), &[]).unwrap()
    };
    let state = || {
        let response = get("/v1beta1/status", Certificate::Right);
        assert_eq!(response.status, 200, "{response:?}");
        serde_json::from_slice::<serde_json::Value>(&response.body).unwrap()
    };
    for certificate in [Certificate::Absent, Certificate::OtherName] {
        assert_eq!(get("/v1beta1/status", certificate).status, 401);
        assert_eq!(get("/metrics", certificate).status, 200);
    }
    assert_eq!(state()["state"], "idle");
    let content = disk::content(1, 4 * MIB);
    let (front, back) = content.split_at(content.len() / 2);
    let mut upload = server.begin_upload("/v1beta1/upload", content.len(), front);
    server.wait_for_received(front.len() as u64);
    let during = state();
    assert_eq!(during["state"], "uploading", "{during}");
    assert_eq!(during["received_bytes"], front.len(), "{during}");
    assert_eq!(during["total_bytes"], content.len(), "{during}");
    assert_eq!(during["percent"].as_f64().unwrap().round(), 50.0, "{during}");
    for part in ["source", "decoder", "target"] {
        assert!(during["limited_seconds"][part].is_f64(), "{during}");
    }
    let metrics = get("/metrics", Certificate::Right).text();
    assert!(metrics.contains("# TYPE "), "{metrics}");
    let limited = "cdi_transfer_limited_seconds_total{program=\"uploadserver\",part=\"source\"} ";
    assert!(metrics.contains(limited), "{metrics}");
    assert!(metrics.contains(&front.len().to_string()), "{metrics}");
    upload.send(back).unwrap();
    upload.response().unwrap().assert_uploaded();
}
