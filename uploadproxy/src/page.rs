//! The web page for browsers, as static files that are compiled into the program.

use http::{HeaderName, HeaderValue, StatusCode, header};
use https::reply::{self, Reply};

/// A file of the web page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageAsset {
    Html,
    Css,
    PageJs,
    UploadJs,
    PartsJs,
}

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// Content security policy (Content Security Policy Level 3): the page may load only its own files
/// and `data:` images, and may send requests only to its own origin.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-cache"),
];

/// Returns a file of the page as a response.
pub(crate) fn asset_reply(asset: PageAsset) -> Reply {
    let (content_type, bytes): (_, &'static [u8]) = match asset {
        PageAsset::Html => ("text/html; charset=utf-8", include_bytes!("page/index.html")),
        PageAsset::Css => ("text/css; charset=utf-8", include_bytes!("page/page.css")),
        PageAsset::PageJs => (JAVASCRIPT, include_bytes!("page/page.js")),
        PageAsset::UploadJs => (JAVASCRIPT, include_bytes!("page/upload.js")),
        PageAsset::PartsJs => (JAVASCRIPT, include_bytes!("page/parts.js")),
    };
    let mut reply = reply::typed_reply(StatusCode::OK, content_type, bytes);
    for (name, value) in HEADERS {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    reply
}
