//! Parses any form: its file is the same however its bytes arrive, and ends where the boundary is.

use std::cell::RefCell;
use std::sync::Arc;

use hyper::Request;
use hyper::body::Incoming;
use tokio::sync::Mutex;
use uploadserver::form::parts::{self, FormParts};

use crate::{Pieces, Script, assert_sentence, serve};

/// Returns the file in the form that `request` carries.
async fn file(request: Request<Incoming>) -> Result<Vec<u8>, String> {
    let boundary = parts::form_boundary(request.headers()).map_err(|error| error.to_string())?;
    let body = Arc::new(Mutex::new(request.into_body()));
    let mut parts = FormParts::new(&body, boundary);
    let field = parts.find_file().await.map_err(|error| error.to_string())?;
    let bytes = field.bytes().await.map_err(|error| error.to_string())?;
    parts.check_rest().await.map_err(|error| error.to_string())?;
    Ok(bytes.to_vec())
}

/// Returns the file, or the error, of each request in these bytes.
fn files(pieces: Pieces) -> Vec<Result<Vec<u8>, String>> {
    let files = RefCell::new(Vec::new());
    serve(Script::new(pieces), async |request| {
        let file = file(request).await;
        files.borrow_mut().push(file);
    });
    files.into_inner()
}

pub fn run(data: &[u8]) {
    let Some((sizes, form)) = data.split_first_chunk::<{ Pieces::CUTS }>() else {
        return;
    };
    // The first line is the rest of the `Content-Type` header; the others are the body.
    let Some(end) = form.iter().position(|byte| *byte == b'\n') else {
        return;
    };
    let (content_type, body) = (form[..end].trim_ascii_end(), &form[end + 1..]);
    let head =
        format!("POST / HTTP/1.1\r\nContent-Length: {}\r\nContent-Type: multipart/", body.len());
    let request = [head.as_bytes(), content_type, b"\r\n\r\n", body].concat();
    let pieces = Pieces::of(*sizes, request);
    let (in_pieces, whole) = (files(pieces.clone()), files(pieces.in_large()));
    for result in in_pieces.iter().chain(&whole) {
        match result {
            Ok(file) => assert!(
                file.is_empty() || body.windows(file.len()).any(|part| part == file),
                "a file that is not a part of the body"
            ),
            Err(sentence) => assert_sentence(sentence),
        }
    }
    let good = |results: &[Result<Vec<u8>, String>]| -> Vec<Option<Vec<u8>>> {
        results.iter().map(|result| result.clone().ok()).collect()
    };
    assert_eq!(
        good(&in_pieces),
        good(&whole),
        "the result depends on how the bytes arrive: {in_pieces:?}, {whole:?}"
    );
}
