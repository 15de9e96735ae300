//! Disks of ESXi hosts without VMware's library.
//!
//! ```text
//!  TicketDesk ── SOAP ──► vSphere: a ticket, which names a host
//!  connect_service ── TCP 902, TLS, authd, TLS ──► NfcLink ── open ──► NfcConnection
//! ```
//!
//! Each connection needs a ticket of its own. A new one also names the new host of a machine that
//! was moved.

#[doc(hidden)] // for the fuzz targets
pub mod authd;
mod connect;
#[doc(hidden)] // for the fuzz targets
pub mod connection;
#[doc(hidden)] // for the fuzz targets
pub mod fragment;
mod link;
mod steps;
#[cfg(test)]
mod tests;
pub(crate) mod ticket;
#[doc(hidden)] // for the fuzz targets
pub mod wire;

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fetch::Network;
use fetch::retry::{AttemptError, with_time_limit};
use stream::error::{SourceError, SourceErrorKind};

use self::connection::{NfcConnection, READ_BYTES};
pub use self::fragment::NfcEncoding;
use self::steps::StepList;
pub use self::steps::SurveyStep;
pub(crate) use self::steps::try_steps;
pub use self::ticket::TicketDesk;
pub(crate) use self::ticket::library_version;
use crate::blocks::{BlockServer, BlockSource, MAX_REQUESTS, ReadLimits};
use crate::vddk::answer::resized_error;

/// Number of connections over which a whole disk is read, unless an option fixes it. VMware
/// recommends at most 50 to one host, for all its clients.
const CONNECTIONS: usize = 4;

/// Most reads under way at a host, on all connections together. A host has 48 MB of buffers for all
/// its clients, and public clients keep to this number.
const HOST_READS: usize = 32;

/// Longest wait for a connection to the port of a host.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// Number of attempts to connect to the port of a host whose disk can be read in another way.
const PORT_ATTEMPTS: u32 = 3;

/// A disk with its first connection open.
pub type NfcSource = BlockSource<NfcServer>;

/// A disk in a file of a machine, and new connections to it.
pub struct NfcServer {
    desk: Arc<TicketDesk>,
    /// The file of the disk, such as `[datastore1] vm/disk.vmdk`.
    path: String,
    /// Size of the disk in bytes, if vSphere or the host has told it.
    size: Option<u64>,
    /// Number of attempts in which the port of the host could not be connected to.
    unreached: AtomicU32,
    /// The used areas, if the host or vSphere lists them.
    used: Option<UsedAreas>,
}

/// The used areas of a disk in order.
pub(crate) type UsedAreas = Arc<[Range<u64>]>;

impl NfcSource {
    /// Opens the disk in the file `path` of the machine for which `desk` gives tickets. `told` is
    /// its size according to vSphere, and `listing` asks vSphere for the used areas. If the disk
    /// can be read in another way (`is_optional`), returns `None` after a few attempts to connect
    /// to the port of the host.
    pub(crate) fn open(
        desk: Arc<TicketDesk>,
        path: &str,
        told: Option<u64>,
        listing: impl Future<Output = Option<UsedAreas>>,
        is_optional: bool,
    ) -> Result<Option<Self>, SourceError> {
        let network = Arc::clone(&desk.network);
        let mut server = NfcServer::new(desk, path, told);
        let retries = network.retry_policy.retries.unwrap_or(u32::MAX);
        let attempts = PORT_ATTEMPTS.min(retries.saturating_add(1));
        let opening = async {
            let limit = network.retry_policy.idle_limit();
            let mut contact = network.first_contact();
            let (mut first, listed) = loop {
                let connecting = async {
                    let mut first = server.connect(limit, &mut StepList::default()).await?;
                    let listed = first.list_used(limit).await?;
                    Ok((first, listed))
                };
                match connecting.await {
                    Ok(opened) => break opened,
                    Err(failure)
                        if is_optional && server.unreached.load(Ordering::Relaxed) == attempts =>
                    {
                        let error = AttemptError::into_error(failure);
                        tracing::warn!("{error}; the disk is exported over HTTPS instead");
                        return Ok(None);
                    }
                    Err(failure) => contact.pause_after(failure).await?,
                }
            };
            first.used = match listed {
                Ok(used) => {
                    tracing::info!("the host lists the used areas of the disk");
                    Some(used)
                }
                Err(error) => {
                    tracing::info!("the host does not list the used areas of the disk: {error}");
                    listing.await
                }
            };
            Ok(Some(first))
        };
        let Some(first) = network.block_on(opening)? else {
            return Ok(None);
        };
        (server.size, server.used) = (Some(first.file.capacity), first.used.clone());
        Ok(Some(Self::new(server, first)))
    }
}

impl NfcServer {
    fn new(desk: Arc<TicketDesk>, path: &str, size: Option<u64>) -> Self {
        Self { desk, path: path.to_owned(), size, unreached: AtomicU32::new(0), used: None }
    }

    async fn connect(
        &self,
        limit: Duration,
        steps: &mut StepList,
    ) -> Result<NfcConnection, AttemptError> {
        let server = self.desk.endpoint.host_str().unwrap_or_default();
        let ticket = self.desk.issue().await;
        let ticket = ticket.map_err(|failure| failure.with_context(server))?;
        let given = format!("vSphere gives one for port {} of {}", ticket.port, ticket.host);
        steps.add("ticket", given);
        let place = format!("{server}: ESXi host {}, port {}", ticket.host, ticket.port);
        // The ticket is a secret, so an unknown host never gets it, also where the user wants no
        // verification of vSphere.
        if ticket.thumbprint.is_none() && !self.desk.is_verified {
            let message = format!(
                "{place}: vSphere does not name its certificate: give certificates that verify the host"
            );
            return Err(AttemptError::new_final(SourceErrorKind::Invalid, message));
        }
        let network = &self.desk.network;
        let connecting = connect::connect_host(&ticket, network, limit.min(CONNECT_LIMIT));
        let tcp = connecting.await.map_err(|failure| {
            self.unreached.fetch_add(1, Ordering::Relaxed);
            failure.with_context(&place)
        })?;
        let opening = async {
            let tag = authd::random_tag()?;
            let stream = connect::connect_service(tcp, &ticket, &tag, network, steps).await?;
            let place = place.clone();
            NfcConnection::open(stream, &tag, &self.path, place, self.desk.encoding).await
        };
        let opened = with_time_limit(limit, opening).await;
        let mut connection = opened.map_err(|failure| failure.with_context(&place))?;
        connection.used = self.used.clone();
        let found = connection.file.capacity;
        if let Some(told) = self.size.filter(|told| *told != found) {
            return Err(AttemptError::Final(resized_error(told, found, Self::TITLE)));
        }
        Ok(connection)
    }
}

impl BlockServer for NfcServer {
    type Connection = NfcConnection;

    const TITLE: &'static str = "the ESXi host";

    fn disk_name(&self) -> String {
        self.path.clone()
    }

    fn network(&self) -> &Arc<Network> {
        &self.desk.network
    }

    fn disk_bytes(&self) -> u64 {
        self.size.unwrap_or_default()
    }

    fn data_ranges(&self) -> Option<&[Range<u64>]> {
        self.used.as_deref()
    }

    fn connection_count(&self) -> usize {
        self.desk.network.connections.map_or(CONNECTIONS, NonZeroUsize::get).min(HOST_READS)
    }

    /// All reads have the same length, so that parts of them that have arrived are found again.
    fn read_limits(&self, connections: usize, _failures: u32) -> ReadLimits {
        let reads = (HOST_READS / connections).clamp(1, MAX_REQUESTS);
        ReadLimits { reads, ahead_bytes: u64::MAX, read_bytes: READ_BYTES }
    }

    async fn reconnect(
        &self,
        broken: &mut Option<NfcConnection>,
        limit: Duration,
    ) -> Result<NfcConnection, AttemptError> {
        let mut connection = self.connect(limit, &mut StepList::default()).await?;
        if let Some(broken) = broken.take() {
            connection.carry_reads(broken);
        }
        Ok(connection)
    }
}
