//! `virtctl image-upload`, as implemented in kubevirt's pkg/virtctl/imageupload, against upload
//! servers that fail.

use std::cell::Cell;
use std::time::Duration;

use serde_json::json;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::https::{Connection, Request};
use testkit::tokens::{self, claims};
use testkit::upload_pod::Server;
use testkit::upload_proxy::{NAMESPACE, PVC, Scripted};
use testkit::upstream::{Reads, Script, Then};

use crate::clients::{BINARY, Pair, UPLOADED};

/// Retries after the first attempt: the default of `--retry`.
const RETRIES: u32 = 5;

/// How often virtctl replaces an expired token.
const REFRESHES: u32 = 3;

/// Imitates what virtctl does with a token and an image.
struct Virtctl<'a> {
    front: &'a Server,
    /// Returns a token; the real virtctl creates an UploadTokenRequest.
    token: &'a dyn Fn() -> String,
    /// Pause between attempts; the real virtctl waits for milliseconds.
    pause: Duration,
}

impl Virtctl<'_> {
    /// Uploads `image`, or returns the error that virtctl would print.
    fn upload(&self, image: &[u8]) -> Result<(), String> {
        let mut token = (self.token)();
        let mut refreshes = 0;
        let mut last = String::new();
        for attempt in 0..=RETRIES {
            if attempt > 0 {
                std::thread::sleep(self.pause);
            }
            match self.attempt(&token, image) {
                Ok((200, _)) => return Ok(()),
                Ok((401, body)) if attempt == 0 => {
                    return Err(format!("authentication failed: {body}"));
                }
                Ok((401, _)) if refreshes < REFRESHES => {
                    refreshes += 1;
                    token = (self.token)();
                }
                Ok((status, body)) => last = format!("unexpected return value {status}, {body}"),
                Err(error) => last = error.to_string(),
            }
        }
        Err(format!("error uploading image after {RETRIES} retries: {last}"))
    }

    /// Asks by HEAD which of the two paths to use, and sends the image, on the same connection if
    /// it is still open.
    fn attempt(&self, token: &str, image: &[u8]) -> std::io::Result<(u16, String)> {
        let bearer = format!("Bearer {token}");
        let mut connection = self.front.connect();
        let head = Request::new("HEAD", "/v1beta1/upload-async").header("Authorization", &bearer);
        let is_async = connection.exchange(&head, b"").is_ok_and(|response| response.status == 200);
        let path = if is_async { "/v1beta1/upload-async" } else { "/v1beta1/upload" };
        let request = Request::post(path)
            .header("User-Agent", "Go-http-client/1.1")
            .header("Accept-Encoding", "gzip")
            .header("Content-Type", "application/octet-stream")
            .header("Authorization", &bearer);
        let post = |connection: &mut Connection| connection.exchange(&request, image);
        // Go's transport opens a new connection when an idle one turns out to be closed.
        let response = post(&mut connection).or_else(|_| post(&mut self.front.connect()))?;
        Ok((response.status, response.text()))
    }
}

fn head_ok() -> Script {
    Script::answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
}

#[test]
fn virtctl_uploads_an_image_by_the_asynchronous_path() {
    let pair = Pair::new();
    let content = disk::content(1, 5 << 20);
    let virtctl = Virtctl {
        front: &pair.front,
        token: &|| pair.proxy.key().token(PVC, NAMESPACE),
        pause: Duration::ZERO,
    };
    virtctl.upload(&content).or_fail("virtctl");
    pair.upload_server.wait().assert_success("virtctl");
    assert!(std::fs::read(pair.pod.disk()).unwrap() == content);
    assert_eq!(pair.pod.message().as_deref(), Some(UPLOADED));
}

#[test]
fn virtctl_uploads_an_archive_by_the_synchronous_path() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), disk::content(1, 1 << 20)).unwrap();
    let archive = folder.path().join("archive.tar");
    let words = ["-C", folder.path().to_str().unwrap(), "-cf", archive.to_str().unwrap(), "file"];
    testkit::tools::run("tar", words);
    let pair = Pair::with(|pod| pod, "archive");
    let virtctl = Virtctl {
        front: &pair.front,
        token: &|| pair.proxy.key().token(PVC, NAMESPACE),
        pause: Duration::ZERO,
    };
    virtctl.upload(&std::fs::read(archive).unwrap()).or_fail("virtctl");
    pair.upload_server.wait().assert_success("virtctl");
    assert!(pair.pod.path("data/file").is_file());
}

#[test]
fn virtctl_retries_failed_uploads_from_the_first_byte() {
    let content = disk::content(2, 3 << 20);
    let scripts = vec![
        // An attempt that a busy server refuses before its body is read.
        head_ok(),
        Script::early(testkit::upstream::answer(503, "")),
        // An attempt whose connection is reset.
        head_ok(),
        Script::stop(Reads::Part(1 << 20), Then::Reset),
        // An attempt whose HEAD request fails already.
        Script::stop(Reads::Head, Then::Close),
        Script::status(500, "Saving stream failed: x"),
        head_ok(),
        Script::status(200, ""),
    ];
    let front = Scripted::start(BINARY, scripts);
    let virtctl = Virtctl {
        front: &front.server,
        token: &|| front.proxy.key().token(PVC, NAMESPACE),
        pause: Duration::ZERO,
    };
    virtctl.upload(&content).or_fail("virtctl");
    let seen = front.upstream.seen();
    let lines: Vec<_> = seen.iter().map(|seen| seen.request_line()).collect();
    let (head, post) =
        ("HEAD /v1beta1/upload-async HTTP/1.1", "POST /v1beta1/upload-async HTTP/1.1");
    let sync = "POST /v1beta1/upload HTTP/1.1";
    assert_eq!(lines, [head, post, head, post, head, sync, head, post]);
    let last = seen.last().unwrap();
    assert_eq!(last.body_bytes(), content.len() as u64);
    assert!(content.starts_with(&last.body()));
}

#[test]
fn virtctl_gives_up_when_the_server_always_fails() {
    let front =
        Scripted::start(BINARY, vec![Script::status(500, "Saving stream failed: it is broken")]);
    let virtctl = Virtctl {
        front: &front.server,
        token: &|| front.proxy.key().token(PVC, NAMESPACE),
        pause: Duration::ZERO,
    };
    let error = virtctl.upload(b"image").unwrap_err();
    assert_eq!(
        error,
        "error uploading image after 5 retries: unexpected return value 500, Saving stream failed: it is broken"
    );
    assert_eq!(front.upstream.seen().len(), 12);
}

#[test]
#[ignore = "slow: waits 8 s"]
fn virtctl_replaces_a_token_that_expires_between_attempts() {
    let scripts = vec![head_ok(), Script::status(503, ""), head_ok(), Script::status(200, "")];
    let front = Scripted::start(BINARY, scripts);
    let asked = Cell::new(0);
    let token = || {
        asked.set(asked.get() + 1);
        if asked.get() > 1 {
            return front.proxy.key().token(PVC, NAMESPACE);
        }
        // Expired 8 s ago, so the leeway of 10 s makes it valid for 2 s more.
        let mut claims = claims(PVC, NAMESPACE);
        claims["exp"] = json!(tokens::now() - 8);
        front.proxy.key().sign("PS256", &claims)
    };
    let virtctl = Virtctl { front: &front.server, token: &token, pause: Duration::from_secs(4) };
    virtctl.upload(b"image").or_fail("virtctl");
    assert_eq!(asked.get(), 2);
    assert_eq!(front.upstream.seen().len(), 4);
}

#[test]
fn virtctl_reports_an_invalid_token_at_once() {
    let front = Scripted::start(BINARY, vec![Script::echo()]);
    let virtctl =
        Virtctl { front: &front.server, token: &|| "abc".to_owned(), pause: Duration::ZERO };
    let error = virtctl.upload(&disk::content(1, 8 << 20)).unwrap_err();
    assert!(
        error.starts_with(
            "authentication failed: the token has expired, or was not issued by this cluster"
        ),
        "{error}"
    );
    assert_eq!(front.upstream.seen().len(), 0);
}
