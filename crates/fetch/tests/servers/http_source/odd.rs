//! Servers whose responses are unusual, or that break the rules of HTTP.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use testkit::framing;

use super::*;

/// The head of the first response.
const WHOLE: &str = "HTTP/1.1 200 OK\nContent-Length: 1000\nETag: \"v1\"";

/// The head of the second response, which has the rest.
const REST: &str = "HTTP/1.1 206 Partial Content\nContent-Length: 500\nETag: \"v1\"\nContent-Range: bytes 500-999/1000";

/// Serves one response on each connection, and closes it. Returns the URL of an object, and the
/// heads of the requests.
fn serve(responses: Vec<Vec<u8>>) -> (String, Receiver<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/a/b", listener.local_addr().unwrap());
    let (seen, heads) = channel();
    std::thread::spawn(move || {
        for response in responses {
            let (mut client, _) = listener.accept().unwrap();
            let lines = BufReader::new(&client).lines().map_while(Result::ok);
            seen.send(lines.take_while(|line| !line.is_empty()).collect()).unwrap();
            client.write_all(&response).unwrap();
        }
    });
    (url, heads)
}

/// Checks that these responses bring `body`. Returns the path and the range of every request, and
/// the error if there was one.
fn outcome(responses: Vec<Vec<u8>>, body: &[u8]) -> String {
    let (url, heads) = serve(responses);
    let mut config = config(&url);
    network(&mut config).retry_policy.retries = Some(3);
    let fetched = open(config).and_then(|source| read_all(&mut *source.open_body()?));
    let asked = heads.try_iter().map(|head| {
        let range = head.iter().find_map(|line| line.strip_prefix("range: bytes="));
        format!("{} {}", head[0].split(' ').nth(1).unwrap(), range.unwrap_or("all"))
    });
    let asked = asked.collect::<Vec<_>>().join(", ");
    match fetched {
        Ok(bytes) if bytes == body => asked,
        Ok(_) => format!("{asked}: other bytes"),
        Err(error) => format!("{asked}: {error}").replace(&url, "URL"),
    }
}

fn response(head: &str, body: &[u8]) -> Vec<u8> {
    let head = head.replace('\n', "\r\n");
    [head.as_bytes(), b"\r\nConnection: close\r\n\r\n", body].concat()
}

#[test]
fn the_rest_of_a_broken_transfer_is_joined_only_if_it_is_certainly_the_rest() {
    let body = noise(1000);
    let joined = "/a/b all, /a/b 500-";
    let early = "HTTP/1.1 103 Early Hints\nLink: </c>\n\nHTTP/1.1 102 Processing\n\n";
    let range = "\nContent-Range: bytes 500-999/1000";
    for (rest, expected) in [
        (format!("{REST}\nAccept-Ranges: none"), joined),
        (REST.replace("/1000", "/*"), joined),
        (REST.replace("bytes", "Bytes"), joined),
        (REST.replace("Content-Length: 500\n", ""), joined),
        (REST.replace("HTTP/1.1", "HTTP/1.0"), joined),
        (REST.replace(" Partial Content", "").replace(": ", ":\t").replace("C", "c"), joined),
        (format!("{early}{REST}"), joined),
        (
            REST.replace("\"v1\"", "W/\"v1\""),
            "/a/b all, /a/b 500-: the server sent a part of the object without its etag \"v1\", so the part may belong to another version. Start the import again, or give a checksum",
        ),
        (
            REST.replace(range, "\nContent-Type: multipart/byteranges; boundary=x"),
            "/a/b all, /a/b 500-: the server was asked for bytes 500 to 1000 and answered with Content-Range \"\"",
        ),
    ] {
        let responses = vec![response(WHOLE, &body[..500]), response(&rest, &body[500..])];
        assert_eq!(outcome(responses, &body), expected, "{rest}");
    }
}

#[test]
fn odd_first_responses_are_understood_or_refused() {
    let body = noise(1000);
    let whole = |head: &str| response(&format!("HTTP/1.1 200 OK\n{head}"), &body);
    let empty = |head: &str| response(&format!("HTTP/1.1 {head}\nContent-Length: 0"), b"");
    let half = |head: &str, part: usize| response(head, &body[part * 500..][..500]);
    let chunks = framing::chunked(&body, 300, &[("X-Checksum", "1")]);
    let after = |heads: [&str; 3]| [&heads.map(empty)[..], &[response(WHOLE, &body)]].concat();
    let retries = ["503 ?\nRetry-After: soon", "503 ?\nRetry-After: -1", "429 ?\nRetry-After: "];
    let redirects = ["301 ?\nLocation: ../c", "303 ?\nLocation: ?x=1", "308 ?\nlocation: ./d#top"];
    // Without a strong ETag, the bytes are compared first.
    let [first, rest] = [WHOLE, REST].map(|head| head.replace('"', ""));
    let again = rest.replace("500-999", "0-499");
    for (responses, expected) in [
        (vec![whole("Content-Length: 1000\nContent-Length: 1000")], "/a/b all"),
        (
            vec![whole("Content-Length: 1000\nContent-Length: 999"); 4],
            "/a/b all, /a/b all, /a/b all, /a/b all: HTTP request errored: URL: invalid content-length parsed",
        ),
        (vec![response(&format!("{WHOLE}\nTransfer-Encoding: Chunked"), &chunks)], "/a/b all"),
        (vec![[b"HTTP/1.1 200 OK\nContent-Length: 1000\n\n", &body[..]].concat()], "/a/b all"),
        (after(retries), "/a/b all, /a/b all, /a/b all, /a/b all"),
        (after(redirects), "/a/b all, /c all, /c?x=1 all, /d all"),
        (
            vec![half(WHOLE, 0), empty("307 ?\nLocation: e"), half(REST, 1)],
            "/a/b all, /a/b 500-, /a/e 500-",
        ),
        (vec![half(&first, 0), half(&again, 0), half(&rest, 1)], "/a/b all, /a/b 0-, /a/b 500-"),
    ] {
        assert_eq!(outcome(responses, &body), expected);
    }
}
