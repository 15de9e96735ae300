//! The engine's side: logging in, and the REST API for disks and transfers, with XML as oVirt 4.5
//! writes it.

use std::time::Instant;

use bytes::Bytes;
use serde_json::json;

use super::script::{DISK_ID, IMAGE_ID, PASSWORD, USER};
use super::transfers::Transfer;
use super::{Log, State, xml};
use crate::wire::Request;

/// The base path of the API.
pub(super) const API: &str = "/ovirt-engine/api";
const TOKEN: &str = "/ovirt-engine/sso/oauth/token";
const LOG_OUT: &str = "/ovirt-engine/services/sso-logout";
const STORAGE_DOMAIN: &str = "c1a1f3de-02b3-44f3-90f2-9e5f3a3c2d33";

/// A response.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) body: Bytes,
}

impl Answer {
    fn xml(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, content_type: "application/xml;charset=UTF-8", body: body.into() }
    }

    fn json(status: u16, body: &serde_json::Value) -> Self {
        Self {
            status,
            content_type: "application/json;charset=UTF-8",
            body: body.to_string().into(),
        }
    }

    fn fault(status: u16, detail: &str) -> Self {
        Self::xml(status, xml::fault(detail))
    }

    fn not_found() -> Self {
        Self::fault(404, "[Entity not found]")
    }

    fn done() -> Self {
        Self::xml(200, "<action><status>complete</status></action>")
    }
}

/// Responds to one request.
pub(super) fn answer(state: &State, request: &Request, body: &str) -> Answer {
    let mut log = state.log();
    let path = request.path();
    let method = request.method.as_str();
    if let Some(document) = state.script.documents.get(&format!("{method} {path}")) {
        return Answer::xml(200, document.clone());
    }
    match (method, path) {
        ("POST", TOKEN) => return log_in(&mut log, request, body),
        ("POST", LOG_OUT) => return log_out(&mut log, request, body),
        _ => {}
    }
    let Some(path) = path.strip_prefix(API) else {
        return Answer::not_found();
    };
    if !log.admits(bearer(request), state.script.token_uses) {
        // This is the error page of the servlet container, not a fault in XML.
        return Answer {
            status: 401,
            content_type: "text/html;charset=UTF-8",
            body: "<html><head><title>Error</title></head><body>Unauthorized</body></html>".into(),
        };
    }
    if request.header("version") != Some("4") || request.header("accept") != Some("application/xml")
    {
        return Answer::fault(406, "[The client wants neither version 4 nor XML]");
    }
    resource(state, &mut log, method, path, body)
}

fn resource(state: &State, log: &mut Log, method: &str, path: &str, body: &str) -> Answer {
    let steps: Vec<&str> = path.split('/').skip(1).filter(|step| !step.is_empty()).collect();
    match (method, steps.as_slice()) {
        ("GET", ["disks", DISK_ID]) => Answer::xml(200, disk(state)),
        ("GET", ["storagedomains", STORAGE_DOMAIN, "disksnapshots"]) => {
            Answer::xml(200, snapshots(state))
        }
        ("POST", ["imagetransfers"]) => start(state, log, body),
        ("GET", ["imagetransfers", id]) => match log.transfer(id, state.script.forgetful) {
            Some(transfer) => {
                transfer.look(&state.script);
                Answer::xml(200, document(state, transfer))
            }
            None => Answer::not_found(),
        },
        ("POST", ["imagetransfers", id, action]) => {
            match log.transfer(id, state.script.forgetful) {
                Some(transfer) => act(state, transfer, action),
                None => Answer::not_found(),
            }
        }
        _ => Answer::not_found(),
    }
}

fn log_in(log: &mut Log, request: &Request, body: &str) -> Answer {
    let form = form(body);
    let field = |name: &str| form.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
    let is_form = request.header("content-type") == Some("application/x-www-form-urlencoded");
    if !is_form
        || field("grant_type") != Some("password")
        || field("scope") != Some("ovirt-app-api")
    {
        return Answer::json(
            400,
            &json!({"error_code": "invalid_request", "error": "Missing parameter"}),
        );
    }
    if field("username") != Some(USER) || field("password") != Some(PASSWORD) {
        let error = "Cannot authenticate user: The user name or password is incorrect..";
        return Answer::json(400, &json!({"error_code": "access_denied", "error": error}));
    }
    let token = format!("token-{}", log.log_ins);
    log.log_ins += 1;
    log.tokens.insert(token.clone(), 0);
    let answer = json!({"access_token": token, "scope": "ovirt-app-api", "exp": "9223372036854775807", "token_type": "bearer"});
    Answer::json(200, &answer)
}

/// The form contains the token. Some clients also send it as bearer token.
fn log_out(log: &mut Log, request: &Request, body: &str) -> Answer {
    let form = form(body);
    let named = form.iter().find(|(name, _)| name == "token").map(|(_, token)| token.as_str());
    match named.or(bearer(request)).and_then(|token| log.tokens.remove(token)) {
        Some(_) => Answer::json(200, &json!({})),
        None => Answer::json(
            400,
            &json!({"error_code": "invalid_grant", "error": "The provided token is unknown"}),
        ),
    }
}

fn start(state: &State, log: &mut Log, body: &str) -> Answer {
    let posted = log.posted;
    log.posted += 1;
    if let Some(detail) = state.script.locked.get(posted) {
        return Answer::fault(409, detail);
    }
    // A disk is locked while it is being transferred.
    if log.transfers.iter().any(|transfer| !transfer.has_ended()) {
        return Answer::fault(409, super::DISK_IS_LOCKED);
    }
    match Transfer::requested(&state.script, body, log.transfers.len()) {
        Err(detail) => Answer::fault(400, &format!("[{detail}]")),
        Ok(mut transfer) => {
            transfer.look(&state.script);
            if let Some(daemon) = &state.script.daemon {
                daemon.add_ticket(&transfer.id, &transfer.format, transfer.bytes());
            }
            let answer = Answer::xml(201, document(state, &transfer));
            log.transfers.push(transfer);
            answer
        }
    }
}

fn act(state: &State, transfer: &mut Transfer, action: &str) -> Answer {
    let done = match action {
        "extend" => {
            transfer.extended += 1;
            transfer.active = Instant::now();
            Ok(())
        }
        "finalize" if transfer.phase == "transferring" => transfer.end("finished_success"),
        "finalize" => Err(format!("[Cannot finalize a transfer in phase {}]", transfer.phase)),
        "cancel" => transfer.end("cancelled_user"),
        _ => return Answer::not_found(),
    };
    if let Some(daemon) = &state.script.daemon
        && transfer.has_ended()
    {
        daemon.remove_ticket(&transfer.id);
    }
    done.map_or_else(|detail| Answer::fault(409, &detail), |()| Answer::done())
}

fn disk(state: &State) -> String {
    let Contents { virtual_size, stored } = contents(state);
    format!(
        r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<disk href="{API}/disks/{DISK_ID}" id="{DISK_ID}">
    <name>disk &amp; more</name>
    <actual_size>{stored}</actual_size>
    <format>cow</format>
    <image_id>{IMAGE_ID}</image_id>
    <provisioned_size>{virtual_size}</provisioned_size>
    <status>ok</status>
    <total_size>{stored}</total_size>
    <storage_domains>
        <storage_domain href="{API}/storagedomains/{STORAGE_DOMAIN}" id="{STORAGE_DOMAIN}"/>
    </storage_domains>
</disk>
"#
    )
}

struct Contents {
    virtual_size: usize,
    stored: usize,
}

/// Returns the sizes of the disk. `total_size` is the space that it takes on its storage, not its
/// virtual size.
fn contents(state: &State) -> Contents {
    let disk = &state.script.disk;
    Contents { virtual_size: disk.raw.len(), stored: disk.cow.len().max(4096) }
}

fn snapshots(state: &State) -> String {
    let list = state.script.snapshots.keys().map(|id| {
        format!("    <disk_snapshot id=\"{id}\">\n        <disk id=\"{DISK_ID}\"/>\n    </disk_snapshot>\n")
    });
    format!("<disk_snapshots>\n{}</disk_snapshots>\n", list.collect::<String>())
}

fn document(state: &State, transfer: &Transfer) -> String {
    let Transfer { id, phase, format, .. } = transfer;
    let url = match phase.as_str() {
        // No ticket exists yet.
        "initializing" => String::new(),
        _ => format!("    <transfer_url>{}/images/{id}</transfer_url>\n", state.image_server()),
    };
    format!(
        "<image_transfer href=\"{API}/imagetransfers/{id}\" id=\"{id}\">\n    <active>false</active>\n    \
         <direction>download</direction>\n    <format>{format}</format>\n    <inactivity_timeout>60</inactivity_timeout>\n    \
         <phase>{phase}</phase>\n{url}    <transferred>0</transferred>\n</image_transfer>\n"
    )
}

fn bearer(request: &Request) -> Option<&str> {
    request.header("authorization")?.strip_prefix("Bearer ")
}

/// Parses a form (WHATWG URL, `application/x-www-form-urlencoded`).
fn form(body: &str) -> Vec<(String, String)> {
    let fields = body.split('&').filter_map(|field| field.split_once('='));
    fields.map(|(name, value)| (unescaped(name), unescaped(value))).collect()
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        rest = match (first, escaped) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                &after[2..]
            }
            (b'+', _) => {
                bytes.push(b' ');
                after
            }
            _ => {
                bytes.push(*first);
                after
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_unescaped() {
        let expected = [("a".to_owned(), "b c".to_owned()), ("d".to_owned(), "&=%é".to_owned())];
        assert_eq!(form("a=b+c&d=%26%3D%25%C3%A9"), expected);
    }
}
