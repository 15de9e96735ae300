//! Disks of an oVirt engine, through its ImageIO service (contract of CDI's `imageio` source).
//!
//! ```text
//!  engine (XML over REST)                     image server (HTTP)
//!  token ─► disk ─► image transfer ─► URL ──► extents ─► ranges of data; holes are not requested
//!              ▲ extended while the disk is read
//!              └ finalized or cancelled when the source is dropped, however the import ends
//! ```

mod engine;
mod extents;
mod session;
mod ticket;
mod transfer;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use fetch::Network;
use fetch::engine::ObjectRegions;
use fetch::error::invalid_error;
use fetch::http::{ContinuityProof, HttpConfig, HttpSource, keeps_promise, parse_endpoint};
use stream::error::{SourceError, SourceErrorKind};
use stream::options::StatedDisk;
use stream::source::{Source, SourceBody};
use url::Url;

pub use self::extents::parse_extents;
use self::extents::{ImageIoExtent, described_bytes, read_extents};
use self::session::OvirtSession;
pub use self::session::require_credentials;
use self::ticket::{ImageIoBody, ReadActivity, TicketKeeper};
use self::transfer::ImageTransfer;
use crate::checkpoints::Checkpoints;

/// Path of the API on the host of an engine.
const API: &str = "/ovirt-engine/api";

/// A disk whose transfer has begun. Dropping it ends the transfer and the session.
pub struct ImageIoSource {
    // Fields are dropped in this order, so that no request follows the end of the transfer.
    data: HttpSource,
    _ticket: TicketKeeper,
    _transfer: ImageTransfer,
    name: String,
    is_delta: bool,
    progress: Arc<ReadActivity>,
}

impl ImageIoSource {
    /// Logs in to the engine whose API is at `api`, begins the transfer of a disk and opens its
    /// data.
    pub fn open(
        api: &Url,
        disk_id: &str,
        checkpoints: &Checkpoints,
        network: &Arc<Network>,
    ) -> Result<Self, SourceError> {
        // The stop token does not cancel this: a transfer that has begun has to be ended.
        let transfer =
            network.handle.block_on(begin_transfer(api, disk_id, checkpoints, network))?;
        let url = transfer.data_url.clone();
        keeps_promise(api, &url, network.is_checked)?.warn_downgrade();
        let is_delta = transfer.is_delta;
        let extents =
            if is_delta { None } else { network.block_on(read_extents(network, &url))? };
        let name = format!("oVirt disk {disk_id}");
        let config = HttpConfig {
            // The disk cannot change: the engine locks it while it is transferred.
            continuity: ContinuityProof::Immutable,
            name: Some(name.clone()),
            regions: extents.as_deref().map(data_of),
            ..HttpConfig::from_url(url, network)
        };
        let progress = Arc::new(ReadActivity::default());
        let shared = Arc::clone(&transfer.shared);
        let ticket = TicketKeeper::start_renewal(shared, config.clone(), Arc::clone(&progress));
        let data = HttpSource::open_after_login(config)?;
        // An unknown length is rejected too: a server that announces none cannot know whether it
        // sent everything.
        if let Some(extents) = &extents
            && data.total_bytes() != Some(described_bytes(extents))
        {
            let length = data.total_bytes().map(|length| length.to_string());
            let message = format!(
                "the extents of the disk end at byte {}, its data at byte {}",
                described_bytes(extents),
                length.as_deref().unwrap_or("(unknown)")
            );
            return Err(SourceError::new(SourceErrorKind::Length, message));
        }
        Ok(Self { data, _ticket: ticket, _transfer: transfer, name, is_delta, progress })
    }
}

impl Source for ImageIoSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn total_bytes(&self) -> Option<u64> {
        self.data.total_bytes()
    }

    fn is_ranged(&self) -> bool {
        self.data.is_ranged()
    }

    /// A whole disk is requested as raw. The changes since a checkpoint come as qcow2.
    fn stated_disk(&self) -> Option<StatedDisk> {
        (!self.is_delta).then_some(StatedDisk::PLAIN)
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        let (data, progress) = (self.data.open_body()?, Arc::clone(&self.progress));
        Ok(Box::new(ImageIoBody { data, progress }))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        let bytes = self.data.read_range(range)?;
        self.progress.mark_read();
        Ok(bytes)
    }
}

/// Returns the URL of an engine's API. The address may be the URL of the host, as oVirt's own
/// programs expect, or already the URL of the API.
pub fn api_of_engine(address: &str) -> Result<Url, SourceError> {
    let mut url = parse_endpoint(address)?;
    let path = url.path().trim_end_matches('/');
    let path = format!("{}{API}", path.strip_suffix(API).unwrap_or(path));
    url.set_path(&path);
    Ok(url)
}

/// Splits `ovirt+https://engine/ovirt-engine/api/disks/ID` into the API and the identifier of the
/// disk.
pub fn disk_of_engine(address: &str) -> Result<(Url, String), SourceError> {
    let parsed = address.get("ovirt+".len()..).and_then(|address| Url::parse(address).ok());
    let split = parsed.and_then(|mut url| {
        let (api, id) = url.path().rsplit_once("/disks/")?;
        let (api, id) = (api.to_owned(), id.to_owned());
        url.set_path(&api);
        (!id.is_empty() && !id.contains('/')).then_some((url, id))
    });
    split.ok_or_else(|| {
        invalid_error("an oVirt disk is given as ovirt+https://ENGINE/ovirt-engine/api/disks/ID")
    })
}

async fn begin_transfer(
    api: &Url,
    disk_id: &str,
    checkpoints: &Checkpoints,
    network: &Arc<Network>,
) -> Result<ImageTransfer, SourceError> {
    let session = network.unless_stopped(OvirtSession::open(api, network)).await?;
    ImageTransfer::begin_transfer(session, disk_id, checkpoints, Arc::clone(network)).await
}

/// Returns the ranges in which the disk contains data.
fn data_of(extents: &[ImageIoExtent]) -> ObjectRegions {
    let data = extents.iter().filter(|extent| !extent.zero);
    ObjectRegions::new(data.map(|extent| extent.start..extent.end_offset()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_must_name_engine_and_disk() {
        let (api, disk) =
            disk_of_engine("ovirt+https://engine/ovirt-engine/api/disks/4a-b").unwrap();
        assert_eq!((api.as_str(), disk.as_str()), ("https://engine/ovirt-engine/api", "4a-b"));
        for address in [
            "ovirt+https://engine/api",
            "ovirt+https://engine/api/disks/",
            "ovirt+https://engine/api/disks/a/b",
            "ovirt+https://",
        ] {
            assert!(disk_of_engine(address).is_err(), "{address}");
        }
    }

    #[test]
    fn an_engine_may_be_given_with_or_without_its_api_path() {
        for (address, api) in [
            ("https://engine", "https://engine/ovirt-engine/api"),
            ("https://engine/", "https://engine/ovirt-engine/api"),
            ("https://engine:8443/ovirt-engine/api", "https://engine:8443/ovirt-engine/api"),
            ("https://engine/ovirt-engine/api/", "https://engine/ovirt-engine/api"),
            ("https://proxy/to", "https://proxy/to/ovirt-engine/api"),
        ] {
            assert_eq!(api_of_engine(address).unwrap().as_str(), api);
        }
        for address in ["", "engine", "ftp://engine", "https://"] {
            assert!(api_of_engine(address).is_err(), "{address}");
        }
    }
}
