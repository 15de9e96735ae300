//! The image transfers of an engine: what was requested, and their progress.

use super::script::{Contents, DISK_ID, Script};
use super::xml;

/// A transfer as the engine sees it.
#[derive(Clone)]
pub struct Transfer {
    /// The ID of the transfer and of its ticket.
    pub id: String,
    /// The phase that the engine reports to clients.
    pub phase: String,
    /// `raw` or `cow`.
    pub format: String,
    /// What is transferred: `disk`, or the ID of a snapshot.
    pub subject: String,
    /// How often the transfer was extended.
    pub extended: usize,
    pub(super) looks: usize,
    pub(super) contents: Contents,
}

impl std::fmt::Debug for Transfer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, phase, format, subject, extended, .. } = self;
        write!(f, "{id}: {format} of {subject}, {phase}, extended {extended} times")
    }
}

/// Phases in which a transfer can no longer be changed.
const ENDED: [&str; 4] =
    ["finished_success", "finished_failure", "cancelled_user", "cancelled_system"];

impl Transfer {
    /// Parses the transfer requested by `body`. The error says what is wrong with the request.
    pub(super) fn requested(script: &Script, body: &str, number: usize) -> Result<Self, String> {
        let expect = |name: &str, value: &str| match xml::text(body, name) {
            Some(found) if found == value => Ok(()),
            found => Err(format!("{name} is {found:?}, not {value:?}")),
        };
        if !body.trim_start().starts_with("<image_transfer") {
            return Err("not an image_transfer".to_owned());
        }
        expect("direction", "download")?;
        expect("inactivity_timeout", "60")?;
        let format = xml::text(body, "format").unwrap_or_else(|| "raw".to_owned());
        if format != "raw" && format != "cow" {
            return Err(format!("format is {format:?}"));
        }
        let (subject, contents) = subject(script, body)?;
        Ok(Self {
            id: format!("00000000-0000-4000-8000-{number:012}"),
            phase: "initializing".to_owned(),
            format,
            subject,
            extended: 0,
            looks: 0,
            contents,
        })
    }

    /// The bytes of the requested format.
    pub(super) fn bytes(&self) -> &bytes::Bytes {
        if self.format == "cow" { &self.contents.cow } else { &self.contents.raw }
    }

    /// Records that a client polls the transfer, which may end the initialization.
    pub(super) fn look(&mut self, script: &Script) {
        self.looks += 1;
        if self.phase == "initializing" && self.looks > script.initializing {
            script.phase.clone_into(&mut self.phase);
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        ENDED.contains(&self.phase.as_str())
    }

    /// Ends the transfer in `phase`, unless it has already ended.
    pub(super) fn end(&mut self, phase: &str) -> Result<(), String> {
        if self.has_ended() {
            return Err(format!("[Cannot change a transfer in phase {}]", self.phase));
        }
        phase.clone_into(&mut self.phase);
        Ok(())
    }
}

/// Returns the requested disk or snapshot. Clients name the disk in `disk` or, in the style before
/// oVirt 4.0, in `image`.
fn subject(script: &Script, body: &str) -> Result<(String, Contents), String> {
    if let Some(snapshot) = xml::id(body, "snapshot") {
        let contents = script.snapshots.get(&snapshot).cloned();
        return match contents {
            Some(contents) => Ok((snapshot, contents)),
            None => Err(format!("no snapshot {snapshot}")),
        };
    }
    match xml::id(body, "image").or_else(|| xml::id(body, "disk")) {
        Some(id) if id == DISK_ID => Ok(("disk".to_owned(), script.disk.clone())),
        other => Err(format!("no disk {other:?}")),
    }
}
