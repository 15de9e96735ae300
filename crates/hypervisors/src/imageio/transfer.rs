//! Begins an image transfer of the engine, keeps it alive, and always ends it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fetch::Network;
use fetch::messages::plain_line;
use fetch::retry::with_lookup_limit;
use http::{Method, StatusCode};
use stream::error::{SourceError, SourceErrorKind};
use tokio::time::{Instant, sleep};
use url::Url;

use super::engine::TransferSubject;
use super::session::{OvirtSession, path_segment, xml_element};
use crate::checkpoints::Checkpoints;
use crate::xml::{XmlElement, escape_text};

/// Seconds of inactivity after which the engine abandons the transfer.
const INACTIVITY_SECONDS: &str = "60";
/// Pause before a locked disk is requested again.
const LOCKED_PAUSE: Duration = Duration::from_secs(15);
/// Longest wait for a locked disk. Disks are locked while snapshots are created and removed.
const LOCKED_LIMIT: Duration = Duration::from_secs(1800);
/// Pause between two checks of a transfer that is not ready yet.
const PHASE_PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for a transfer to become ready.
const PHASE_LIMIT: Duration = Duration::from_secs(600);
/// Number of attempts to end a transfer, and the pause between them.
const END_ATTEMPTS: u32 = 10;
const END_PAUSE: Duration = Duration::from_secs(2);
/// Longest time for ending a transfer, over all attempts. A pod that is being stopped has 30 s.
const END_LIMIT: Duration = Duration::from_secs(8);

/// A transfer that has begun, and the session that it belongs to. Dropping it ends the transfer
/// and logs out.
pub(super) struct ImageTransfer {
    /// The state that is shared with the task that keeps the transfer alive.
    pub(super) shared: Arc<ActiveTransfer>,
    /// True if the data is the qcow2 image of the changes, false for the bytes of the disk.
    pub(super) is_delta: bool,
    /// URL of the data.
    pub(super) data_url: Url,
    network: Arc<Network>,
}

/// An active transfer and its session.
pub(super) struct ActiveTransfer {
    session: OvirtSession,
    /// The identifier of the transfer as a path segment. Set as soon as there is a transfer to be
    /// ended.
    segment: OnceLock<String>,
}

impl ImageTransfer {
    /// Begins the transfer of a disk, or of one of its snapshots, and waits until its data can be
    /// read. If this fails or is stopped, everything that was begun is ended again.
    pub(super) async fn begin_transfer(
        session: OvirtSession,
        disk_id: &str,
        checkpoints: &Checkpoints,
        network: Arc<Network>,
    ) -> Result<Self, SourceError> {
        let is_delta = checkpoints.base_snapshot().is_some();
        let shared = Arc::new(ActiveTransfer { session, segment: OnceLock::new() });
        let finding = with_lookup_limit(shared.session.find_subject(disk_id, checkpoints));
        let found = network.unless_stopped(finding).await;
        let begun = match found {
            Ok(subject) => {
                shared.begin_transfer(&transfer_request(&subject, is_delta), &network).await
            }
            Err(error) => Err(error),
        };
        match begun {
            Ok(data_url) => Ok(Self { shared, is_delta, data_url, network }),
            Err(error) => {
                // Otherwise the engine keeps the transfer and the session until its own timeout.
                shared.shut_down().await;
                Err(error)
            }
        }
    }
}

impl Drop for ImageTransfer {
    fn drop(&mut self) {
        let ending = self.shared.shut_down();
        // End the transfer now: the process may exit next, and the engine would keep the transfer
        // until its own timeout.
        self.network.handle.block_on(ending);
    }
}

impl ActiveTransfer {
    /// Requests the transfer, and waits until the data at the returned URL can be read.
    async fn begin_transfer(&self, request: &str, network: &Network) -> Result<Url, SourceError> {
        let mut transfer = self.request_transfer(request, network).await?;
        let deadline = Instant::now() + PHASE_LIMIT;
        loop {
            match transfer.text_of("phase").unwrap_or_default() {
                "transferring" => return data_url(&transfer),
                "initializing" if Instant::now() < deadline => {}
                phase => {
                    let message = format!("Error transfer phase: {}", plain_line(phase));
                    return Err(SourceError::new(SourceErrorKind::Io, message));
                }
            }
            transfer = network
                .unless_stopped(async {
                    sleep(PHASE_PAUSE).await;
                    self.get_transfer().await
                })
                .await?;
        }
    }

    /// Requests the transfer, repeatedly while the disk is locked.
    async fn request_transfer(
        &self,
        request: &str,
        network: &Network,
    ) -> Result<XmlElement, SourceError> {
        let deadline = Instant::now() + LOCKED_LIMIT;
        loop {
            // The stop token does not cancel this: the response identifies the transfer that will
            // have to be ended.
            let answer =
                self.session.try_call(Method::POST, "imagetransfers", Some(request)).await?;
            match answer {
                Ok(transfer) => {
                    let Some(id) = &transfer.id else {
                        let message = "the engine started an image transfer without an id";
                        return Err(SourceError::new(SourceErrorKind::Io, message));
                    };
                    let segment = path_segment(id)?;
                    self.segment.get_or_init(|| segment);
                    return Ok(transfer);
                }
                Err(fault) if is_locked(&fault.text) && Instant::now() < deadline => {
                    tracing::info!("the disk is locked, waiting: {}", fault.text);
                    network
                        .unless_stopped(async {
                            sleep(LOCKED_PAUSE).await;
                            Ok(())
                        })
                        .await?;
                }
                Err(fault) => {
                    let kind = SourceErrorKind::Status(fault.status.as_u16());
                    let message =
                        format!("the engine does not start an image transfer: {}", fault.text);
                    return Err(SourceError::new(kind, message));
                }
            }
        }
    }

    fn transfer_id(&self) -> &str {
        self.segment.get().map_or("", String::as_str)
    }

    fn api_path(&self) -> String {
        format!("imagetransfers/{}", self.transfer_id())
    }

    async fn get_transfer(&self) -> Result<XmlElement, SourceError> {
        self.session.call_api(Method::GET, &self.api_path(), None).await
    }

    async fn post_action(&self, action: &str) -> Result<(), SourceError> {
        let path = format!("{}/{action}", self.api_path());
        let body = Some("<action/>");
        self.session.call_api(Method::POST, &path, body).await.map(drop)
    }

    /// Informs the engine that the transfer is still in use.
    pub(super) async fn extend_transfer(&self) -> Result<(), SourceError> {
        self.post_action("extend").await
    }

    /// Ends the transfer and the session. Failures are logged, and the rest is left to the
    /// engine's own timeout.
    async fn shut_down(&self) {
        if self.segment.get().is_some()
            && tokio::time::timeout(END_LIMIT, self.end_transfer()).await.is_err()
        {
            tracing::warn!(
                "image transfer {} does not finish, leaving it to the engine",
                self.transfer_id()
            );
        }
        tokio::time::timeout(END_PAUSE, self.session.close()).await.ok();
    }

    async fn end_transfer(&self) {
        for _ in 0..END_ATTEMPTS {
            match self.try_end().await {
                Ok(()) => return,
                Err(error) => {
                    tracing::debug!("cannot end image transfer {}: {error}", self.transfer_id())
                }
            }
            sleep(END_PAUSE).await;
        }
    }

    /// Makes one attempt to end the transfer.
    async fn try_end(&self) -> Result<(), SourceError> {
        let found = self.session.try_call(Method::GET, &self.api_path(), None).await?;
        let transfer = match found {
            Ok(transfer) => transfer,
            Err(fault) if fault.status == StatusCode::NOT_FOUND => return Ok(()),
            Err(fault) => return Err(fault.into()),
        };
        let phase = transfer.text_of("phase").unwrap_or("unknown");
        tracing::debug!(
            "ending image transfer {} in phase {}",
            self.transfer_id(),
            plain_line(phase)
        );
        match phase {
            "transferring" => self.post_action("finalize").await,
            "initializing" | "resuming" | "unknown" | "paused_system" | "paused_user" => {
                self.post_action("cancel").await
            }
            // The transfer is ending or has ended.
            _ => Ok(()),
        }
    }
}

fn is_locked(text: &str) -> bool {
    text.contains("Disk is locked") || text.contains("disks are locked")
}

fn transfer_request(subject: &TransferSubject, is_delta: bool) -> String {
    format!(
        "<image_transfer>{}{}{}<{} id=\"{}\"/></image_transfer>",
        xml_element("direction", "download"),
        xml_element("inactivity_timeout", INACTIVITY_SECONDS),
        xml_element("format", if is_delta { "cow" } else { "raw" }),
        subject.element,
        escape_text(&subject.id),
    )
}

fn data_url(transfer: &XmlElement) -> Result<Url, SourceError> {
    let text = transfer.text_of("transfer_url").or_else(|| transfer.text_of("proxy_url"));
    text.and_then(|text| Url::parse(text).ok())
        .filter(|url| matches!(url.scheme(), "http" | "https"))
        .ok_or_else(|| {
            let message = "the engine returned no usable transfer_url for the image";
            SourceError::new(SourceErrorKind::Io, message)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_disk_and_format() {
        let subject = TransferSubject { element: "snapshot", id: "a<b".to_owned() };
        assert_eq!(
            transfer_request(&subject, true),
            "<image_transfer><direction>download</direction><inactivity_timeout>60</inactivity_timeout>\
             <format>cow</format><snapshot id=\"a&lt;b\"/></image_transfer>"
        );
    }

    #[test]
    fn both_messages_for_a_locked_disk_are_recognised() {
        assert!(is_locked("Operation Failed: [Cannot transfer Virtual Disk. Disk is locked.]"));
        assert!(is_locked("The following disks are locked: a"));
        assert!(!is_locked("no such disk"));
    }
}
