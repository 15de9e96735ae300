//! The engine's side: logging in, and the REST API for disks and transfers, with XML as oVirt 4.5
//! writes it.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::json;
use url::form_urlencoded;

use super::script::{DISK_ID, IMAGE_ID, PASSWORD, USER};
use super::transfers::Transfer;
use super::{Log, State, xml};
use crate::adversary::Reply;
use crate::wire::Request;

/// The base path of the API.
pub(super) const API: &str = "/ovirt-engine/api";
const TOKEN: &str = "/ovirt-engine/sso/oauth/token";
const LOG_OUT: &str = "/ovirt-engine/services/sso-logout";
const STORAGE_DOMAIN: &str = "c1a1f3de-02b3-44f3-90f2-9e5f3a3c2d33";

fn xml(status: u16, body: impl Into<Bytes>) -> Reply {
    Reply::status(status, body).with("Content-Type", "application/xml;charset=UTF-8")
}

fn json(status: u16, body: &serde_json::Value) -> Reply {
    let reply = Reply::status(status, body.to_string());
    reply.with("Content-Type", "application/json;charset=UTF-8")
}

fn fault(status: u16, detail: &str) -> Reply {
    xml(status, xml::fault(detail))
}

fn not_found() -> Reply {
    fault(404, "[Entity not found]")
}

/// Responds to one request.
pub(super) fn answer(state: &State, request: &Request, body: &str) -> Reply {
    let mut log = state.log();
    let path = request.path();
    let method = request.method.as_str();
    if let Some(document) = state.script.documents.get(&format!("{method} {path}")) {
        return xml(200, document.clone());
    }
    match (method, path) {
        ("POST", TOKEN) => return log_in(&mut log, request, body),
        ("POST", LOG_OUT) => return log_out(&mut log, request, body),
        _ => {}
    }
    let Some(path) = path.strip_prefix(API) else {
        return not_found();
    };
    if !log.admits(bearer(request), state.script.token_uses) {
        // This is the error page of the servlet container, not a fault in XML.
        let page = "<html><head><title>Error</title></head><body>Unauthorized</body></html>";
        return Reply::status(401, page).with("Content-Type", "text/html;charset=UTF-8");
    }
    if request.header("version") != Some("4") || request.header("accept") != Some("application/xml")
    {
        return fault(406, "[The client wants neither version 4 nor XML]");
    }
    resource(state, &mut log, method, path, body)
}

fn resource(state: &State, log: &mut Log, method: &str, path: &str, body: &str) -> Reply {
    let steps: Vec<&str> = path.split('/').skip(1).filter(|step| !step.is_empty()).collect();
    match (method, steps.as_slice()) {
        ("GET", ["disks", DISK_ID]) => xml(200, disk(state)),
        ("GET", ["storagedomains", STORAGE_DOMAIN, "disksnapshots"]) => xml(200, snapshots(state)),
        ("POST", ["imagetransfers"]) => start(state, log, body),
        (_, ["imagetransfers", id, action @ ..]) => {
            let Some(transfer) = log.transfer(id, state.script.forgetful) else {
                return not_found();
            };
            match (method, action) {
                ("GET", []) => {
                    transfer.look(&state.script);
                    xml(200, document(state, transfer))
                }
                ("POST", [action]) => act(state, transfer, action),
                _ => not_found(),
            }
        }
        _ => not_found(),
    }
}

fn log_in(log: &mut Log, request: &Request, body: &str) -> Reply {
    let form: HashMap<_, _> = form_urlencoded::parse(body.as_bytes()).collect();
    let field = |name| form.get(name).map(|value| &**value);
    let is_form = request.header("content-type") == Some("application/x-www-form-urlencoded");
    if !is_form
        || field("grant_type") != Some("password")
        || field("scope") != Some("ovirt-app-api")
    {
        return json(400, &json!({"error_code": "invalid_request", "error": "Missing parameter"}));
    }
    if field("username") != Some(USER) || field("password") != Some(PASSWORD) {
        let error = "Cannot authenticate user: The user name or password is incorrect..";
        return json(400, &json!({"error_code": "access_denied", "error": error}));
    }
    let token = format!("token-{}", log.log_ins);
    log.log_ins += 1;
    log.tokens.insert(token.clone(), 0);
    let answer = json!({"access_token": token, "scope": "ovirt-app-api", "exp": "9223372036854775807", "token_type": "bearer"});
    json(200, &answer)
}

/// The form contains the token. Some clients also send it as bearer token.
fn log_out(log: &mut Log, request: &Request, body: &str) -> Reply {
    let form: HashMap<_, _> = form_urlencoded::parse(body.as_bytes()).collect();
    let named = form.get("token").map(|token| &**token);
    match named.or(bearer(request)).and_then(|token| log.tokens.remove(token)) {
        Some(_) => json(200, &json!({})),
        None => json(
            400,
            &json!({"error_code": "invalid_grant", "error": "The provided token is unknown"}),
        ),
    }
}

fn start(state: &State, log: &mut Log, body: &str) -> Reply {
    let posted = log.posted;
    log.posted += 1;
    if let Some(detail) = state.script.locked.get(posted) {
        return fault(409, detail);
    }
    // A disk is locked while it is being transferred.
    if log.transfers.iter().any(|transfer| !transfer.has_ended()) {
        return fault(409, super::DISK_IS_LOCKED);
    }
    match Transfer::requested(&state.script, body, log.transfers.len()) {
        Err(detail) => fault(400, &format!("[{detail}]")),
        Ok(mut transfer) => {
            transfer.look(&state.script);
            if let Some(daemon) = &state.script.daemon {
                daemon.add_ticket(&transfer.id, &transfer.format, transfer.bytes());
            }
            let answer = xml(201, document(state, &transfer));
            log.transfers.push(transfer);
            answer
        }
    }
}

fn act(state: &State, transfer: &mut Transfer, action: &str) -> Reply {
    let done = match action {
        "extend" => {
            transfer.extended += 1;
            Ok(())
        }
        "finalize" if transfer.phase == "transferring" => transfer.end("finished_success"),
        "finalize" => Err(format!("[Cannot finalize a transfer in phase {}]", transfer.phase)),
        "cancel" => transfer.end("cancelled_user"),
        _ => return not_found(),
    };
    if let Some(daemon) = &state.script.daemon
        && transfer.has_ended()
    {
        daemon.remove_ticket(&transfer.id);
    }
    match done {
        Ok(()) => xml(200, "<action><status>complete</status></action>"),
        Err(detail) => fault(409, &detail),
    }
}

fn disk(state: &State) -> String {
    let disk = &state.script.disk;
    let virtual_size = disk.raw.len();
    // `total_size` is the space that the disk takes on its storage, not its virtual size.
    let stored = disk.cow.len().max(4096);
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
        _ => format!(
            "    <transfer_url>{}/images/{id}</transfer_url>\n",
            state.image_server.get().map_or("", String::as_str)
        ),
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
