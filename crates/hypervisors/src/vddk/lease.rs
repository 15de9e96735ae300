//! Exports of disks by a lease of vSphere (`HttpNfcLease`): the whole disk once, over HTTPS, as a
//! stream-optimized VMDK.
//!
//! ```text
//!  ExportVm, ExportSnapshot ─► lease ─► ready ─► URL of the disk ─► HttpSource
//!                                ▲ told about progress while the disk is read
//!                                └ completed at the end, aborted however else the import ends
//! ```
//!
//! While there is a lease, the machine can be neither started nor moved nor deleted.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fetch::Network;
use fetch::error::invalid_error;
use fetch::http::{ContinuityProof, HttpConfig, HttpSource, keeps_promise};
use fetch::messages::plain_line;
use fetch::retry::{AttemptError, within};
use fetch::wrapped::WrappedSource;
use stream::error::{SourceError, SourceErrorKind};
use stream::source::{Source, SourceBody};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use super::answer::{ManagedObjectReference, VsphereFault, resized_error};
use super::disk::{LocatedDisk, VirtualDisk};
use super::options::VddkOptions;
use super::reading::{DiskSupply, VddkReadState};
use super::soap::{LOGOUT_LIMIT, VsphereSession};
use crate::blocks::RangedDisk;
use crate::nfc::ticket::{named_thumbprint, unusable_error};
use crate::xml::XmlElement;

/// Pause between two checks of a lease that is not ready yet.
const READY_PAUSE: Duration = Duration::from_secs(1);

/// Longest pause between two reports of progress. vSphere ends a lease after five minutes without
/// one, unless it says otherwise.
const REPORT_PAUSE: Duration = Duration::from_secs(60);

/// Shortest pause between two reports of progress.
const MIN_REPORT_PAUSE: Duration = Duration::from_millis(250);

/// Longest time for ending a lease. A pod that is being stopped has 30 s.
const END_LIMIT: Duration = Duration::from_secs(8);

/// Longest name of a lease, in bytes. Real ones look like `session[UUID]UUID`.
const MAX_NAME_BYTES: usize = 256;

/// Number of bytes at the beginning of a VMDK that contain its size.
const HEAD_BYTES: usize = 20;

/// Sizes in a VMDK are numbers of sectors, and a disk consists of grains.
const SECTOR_BYTES: u64 = 512;
const GRAIN_BYTES: u64 = 64 << 10;

/// A lease that is ended when this is dropped.
struct ExportLease(Arc<LeaseState>);

struct LeaseState {
    network: Arc<Network>,
    server: String,
    session: Mutex<VsphereSession>,
    object: ManagedObjectReference,
    /// Size of the disk in bytes, if vSphere reports it.
    capacity: Option<u64>,
    is_complete: AtomicBool,
    received_bytes: AtomicU64,
}

/// Requests a lease for the disk that `reading` describes, and opens its data. Dropping what the
/// disk depends on ends the lease and logs out.
pub(super) fn open_lease(
    reading: &VddkReadState,
) -> Result<(Box<dyn RangedDisk>, DiskSupply), SourceError> {
    let VddkReadState { options: VddkOptions { endpoint, .. }, network, found, .. } = reading;
    let LocatedDisk { disk, .. } = found;
    if !disk.is_present {
        return Err(invalid_error(format!(
            "the disk is in the file {:?} no longer, and a lease exports only the present state: take a snapshot and name \
             it (--checkpoint)",
            disk.file
        )));
    }
    let server = endpoint.host_str().unwrap_or_default().to_owned();
    let mut session = network.block_on(VsphereSession::open(endpoint, network))?;
    // The stop token does not cancel this: the answer names the lease that has to be ended.
    let requesting = request_lease(&mut session, found, &server, network);
    let object = match network.handle.block_on(requesting) {
        Ok(object) => object,
        Err(error) => {
            network.handle.block_on(session.close());
            return Err(error);
        }
    };
    let lease = ExportLease(Arc::new(LeaseState {
        network: Arc::clone(network),
        server,
        session: Mutex::new(session),
        object,
        capacity: disk.capacity,
        is_complete: AtomicBool::new(false),
        received_bytes: AtomicU64::new(0),
    }));
    let state = Arc::clone(&lease.0);
    let info = network.block_on(state.wait_until_ready())?;
    let device = find_device(&info, disk)?;
    let url = device_url(device, endpoint)?;
    keeps_promise(endpoint, &url, network.is_checked)?.warn_downgrade();
    let reporting = Arc::clone(&state).report_progress(info.value_of("leaseTimeout"));
    let reporter = AbortOnDropHandle::new(network.handle.spawn(reporting));
    let trust = named_thumbprint(device)?.map(|thumbprint| thumbprint.client_config());
    let trust = trust.transpose()?.unwrap_or_else(|| Arc::clone(&network.tls));
    let network = network.clone_with(|network| network.tls = trust);
    let cookie = network.handle.block_on(state.session.lock()).cookie_for(&url);
    let inner = HttpSource::open_after_login(HttpConfig {
        headers: cookie.into_iter().collect(),
        continuity: ContinuityProof::Once,
        name: Some(reading.name.clone()),
        ..HttpConfig::from_url(url, &network)
    })?;
    let open = move |data: &dyn Source| {
        let (data, state) = (data.open_body()?, Arc::clone(&state));
        Ok(Box::new(LeaseBody { data, state, head: Vec::new() }) as _)
    };
    // Verified although there is no digest: the body completes the lease at its end, so it must be
    // read up to there.
    let disk = WrappedSource { inner: Box::new(inner), is_verified: true, stated_disk: None, open };
    // The reports end first, so that none follows the end of the lease.
    Ok((Box::new(disk), Some(Box::new((reporter, lease)))))
}

impl<F> RangedDisk for WrappedSource<F>
where
    F: Fn(&dyn Source) -> Result<Box<dyn SourceBody>, SourceError> + Send + Sync,
{
    fn ranges_body(&self, _: &Arc<[Range<u64>]>) -> Result<Box<dyn SourceBody>, SourceError> {
        Err(delta_error())
    }
}

/// Creates the error for changes since an earlier checkpoint.
pub(super) fn delta_error() -> SourceError {
    invalid_error(
        "a lease exports whole disks and not what changed since an earlier checkpoint: use --transport nfc or vddk",
    )
}

/// The bytes of an export. The end is reported only if vSphere accepts that it is complete.
struct LeaseBody {
    data: Box<dyn SourceBody>,
    state: Arc<LeaseState>,
    /// The first bytes.
    head: Vec<u8>,
}

impl SourceBody for LeaseBody {
    fn next_chunk(&mut self) -> Result<Option<bytes::Bytes>, SourceError> {
        let state = &self.state;
        let chunk = self.data.next_chunk().map_err(|error| {
            let after = state.received_bytes.load(Ordering::Relaxed);
            error.in_context(format_args!(
                "the export of the disk broke after {after} bytes, and vSphere cannot resume it: import it again"
            ))
        })?;
        match &chunk {
            Some(chunk) => {
                state.received_bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
                let missing = HEAD_BYTES - self.head.len();
                self.head.extend(chunk.iter().take(missing));
                if missing > 0 && self.head.len() == HEAD_BYTES {
                    check_head(&self.head, state.capacity)?;
                }
            }
            None if !state.is_complete.load(Ordering::Relaxed) => {
                state.network.block_on(state.call_lease("HttpNfcLeaseComplete", ""))?;
                state.is_complete.store(true, Ordering::Relaxed);
            }
            None => {}
        }
        Ok(chunk)
    }
}

/// Fails unless `head`, the first `HEAD_BYTES` of the export, begins a VMDK of a disk of `capacity`
/// bytes. The size in a VMDK may be rounded up to whole grains.
fn check_head(head: &[u8], capacity: Option<u64>) -> Result<(), SourceError> {
    let sectors = head.get(12..20).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let Some(sectors) = sectors.filter(|_| head.starts_with(b"KDMV")) else {
        return Err(invalid_error("the export of the disk does not begin like a VMDK"));
    };
    let found = sectors.saturating_mul(SECTOR_BYTES);
    match capacity.filter(|told| !(*told..told.saturating_add(GRAIN_BYTES)).contains(&found)) {
        Some(told) => Err(resized_error(told, found, "the export")),
        None => Ok(()),
    }
}

impl Drop for ExportLease {
    fn drop(&mut self) {
        // End the lease now: the process may exit next, and the machine would be locked until the
        // lease expires.
        self.0.network.handle.block_on(self.0.shut_down());
    }
}

/// Requests the lease, repeatedly while another lease or task holds the machine.
async fn request_lease(
    session: &mut VsphereSession,
    found: &LocatedDisk,
    server: &str,
    network: &Network,
) -> Result<ManagedObjectReference, SourceError> {
    let (object, method) = match &found.snapshot {
        Some(snapshot) => (snapshot, "ExportSnapshot"),
        None => (&found.machine, "ExportVm"),
    };
    let patient = network.clone_with(|network| {
        network.retry_policy.contact_limit = network.retry_policy.no_progress_limit;
    });
    let mut contact = patient.first_contact();
    loop {
        let answer = session.call_method(object, method, "").await;
        match answer.map_err(|error| explain_failure(error, server)) {
            Ok(answer) => {
                let name = answer.own_text().filter(|name| name.len() <= MAX_NAME_BYTES);
                let name = name.ok_or_else(|| unusable_error("a lease", "name"))?;
                return Ok(ManagedObjectReference::new("HttpNfcLease", name));
            }
            Err(error) if error.kind() == SourceErrorKind::Io => {
                contact.pause_after(AttemptError::from_transient(error)).await?
            }
            Err(error) => return Err(error),
        }
    }
}

impl LeaseState {
    /// Waits until the data of the lease can be read, and returns the description of the lease.
    async fn wait_until_ready(&self) -> Result<XmlElement, SourceError> {
        let waiting = async {
            let mut session = self.session.lock().await;
            loop {
                let paths = ["state", "error", "info"];
                let properties = session.read_properties(&self.object, &paths).await?;
                let state = properties.text_of("state").unwrap_or_default();
                match (state, properties.child("info")) {
                    ("ready", Some(info)) => return Ok(info.clone()),
                    ("initializing" | "ready", _) => sleep(READY_PAUSE).await,
                    _ => {
                        let fault = VsphereFault::from_state(state, properties.child("error"));
                        let error = SourceError::from_cause(SourceErrorKind::Invalid, fault);
                        return Err(explain_failure(error, &self.server));
                    }
                }
            }
        };
        let limit = self.network.retry_policy.no_progress_limit;
        within(limit, format_args!("{}: the lease is not ready", self.server), waiting).await
    }

    /// Calls a method of the lease.
    async fn call_lease(&self, method: &str, arguments: &str) -> Result<(), SourceError> {
        let mut session = self.session.lock().await;
        let answer = session.call_method(&self.object, method, arguments).await;
        answer.map(drop).map_err(|error| explain_failure(error, &self.server))
    }

    /// Reports progress until the lease is complete, more often than the lease demands, which ends
    /// after `timeout_seconds` without a report.
    async fn report_progress(self: Arc<Self>, timeout_seconds: Option<u32>) {
        let limit = timeout_seconds.map(|seconds| Duration::from_secs(seconds.into()) / 4);
        let pause = limit.unwrap_or(REPORT_PAUSE).clamp(MIN_REPORT_PAUSE, REPORT_PAUSE);
        while !self.is_complete.load(Ordering::Relaxed) {
            sleep(pause).await;
            let received = self.received_bytes.load(Ordering::Relaxed);
            // The export is never longer than the disk, apart from its tables.
            let percent = received.saturating_mul(100) / self.capacity.unwrap_or_default().max(1);
            let progress = format!("<percent>{}</percent>", percent.min(99));
            if let Err(error) = self.call_lease("HttpNfcLeaseProgress", &progress).await
                && !self.is_complete.load(Ordering::Relaxed)
            {
                tracing::warn!("{error}");
            }
        }
    }

    /// Aborts the lease unless it is complete, and logs out.
    async fn shut_down(&self) {
        if !self.is_complete.load(Ordering::Relaxed) {
            match timeout(END_LIMIT, self.call_lease("HttpNfcLeaseAbort", "")).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!("{error}"),
                Err(_) => tracing::warn!(
                    "{} does not abort the lease, which holds the machine until it expires",
                    self.server
                ),
            }
        }
        if let Ok(mut session) = timeout(LOGOUT_LIMIT, self.session.lock()).await {
            session.close().await;
        }
    }
}

/// Adds what the user can do to a fault of a lease at `server`. While another lease or task holds
/// the machine, a later request may succeed.
fn explain_failure(error: SourceError, server: &str) -> SourceError {
    let Some(fault) = VsphereFault::of(&error) else { return error };
    let is_held = ["TaskInProgress", "InvalidState"].contains(&&*fault.kind);
    let remedy = match &*fault.kind {
        "InvalidPowerState" => {
            ": the machine is running: take a snapshot of it and read that (--checkpoint), or stop the machine"
        }
        "NoPermission" => ": the user needs the privilege VApp.Export",
        "FileFault" => ": check that the files of the machine exist and nobody else reads them",
        _ if is_held => {
            ": another export or task holds the machine: wait until it has ended, or end it"
        }
        _ => "",
    };
    let kind = if is_held { SourceErrorKind::Io } else { SourceErrorKind::Invalid };
    SourceError::new(kind, format!("{server}: {fault} ({}){remedy}", fault.kind)).with_cause(error)
}

/// Finds the disk among the devices of a lease. A disk that is only probably the right one is
/// refused.
fn find_device<'i>(
    info: &'i XmlElement,
    disk: &VirtualDisk,
) -> Result<&'i XmlElement, SourceError> {
    let disks: Vec<_> = info
        .children_named("deviceUrl")
        .filter(|device| matches!(device.text_of("disk"), Some("true" | "1")))
        .collect();
    let (name, key) = (disk.file.rsplit('/').next(), disk.key.to_string());
    let is_it = |device: &&&XmlElement| {
        let last = device.text_of("key").and_then(|key| key.rsplit('/').next());
        last.is_some() && (last == disk.address.as_deref() || last == Some(&key))
            || device.text_of("targetId").is_some_and(|id| Some(id) == name)
    };
    match (disks.iter().find(is_it), &*disks) {
        (Some(found), _) => Ok(found),
        (None, [only]) if disk.is_only => Ok(only),
        _ => {
            let keys: Vec<_> = disks.iter().filter_map(|device| device.text_of("key")).collect();
            let (keys, file) = (plain_line(&keys.join(", ")), &disk.file);
            Err(invalid_error(format!(
                "none of the disks that vSphere exports ({keys}) is certainly {file}: use --transport nfc or vddk"
            )))
        }
    }
}

/// Returns the URL of the disk. The host `*` means the server that was asked.
fn device_url(device: &XmlElement, endpoint: &Url) -> Result<Url, SourceError> {
    let parse = || {
        let mut url = Url::parse(device.text_of("url")?).ok()?;
        if url.host_str() == Some("*") {
            url.set_host(endpoint.host_str()).ok()?;
            url.set_port(endpoint.port()).ok()?;
        }
        matches!(url.scheme(), "http" | "https").then_some(url)
    };
    parse().ok_or_else(|| unusable_error("a lease", "url"))
}

#[cfg(test)]
mod tests {
    use super::super::disk::list_disks;
    use super::*;

    fn element(xml: &str) -> XmlElement {
        XmlElement::parse(xml.as_bytes()).unwrap()
    }

    #[test]
    fn the_disk_of_a_lease_is_found_by_its_place_or_refused() {
        let disk = |key: u32, unit: u32| {
            format!(
                "<VirtualDevice><key>{key}</key><controllerKey>1000</controllerKey><unitNumber>{unit}</unitNumber>\
                 <backing><fileName>[a] vm/{key}.vmdk</fileName></backing><capacityInKB>1</capacityInKB></VirtualDevice>"
            )
        };
        let devices = element(&format!(
            "<p><config.hardware.device><VirtualDevice xsi:type=\"vim25:ParaVirtualSCSIController\"><key>1000</key><busNumber>0</busNumber>\
             </VirtualDevice>{}{}</config.hardware.device></p>",
            disk(2000, 0),
            disk(2001, 1)
        ));
        let [_, disk] = &*list_disks(&devices, "") else { panic!("not two disks") };
        assert_eq!(disk.address.as_deref(), Some("ParaVirtualSCSIController0:1"));
        assert!(!disk.is_only && disk.is_present);
        let exported = |key: &str| {
            element(&format!(
                "<val><deviceUrl><key>/vm-1/nvram</key><disk>false</disk></deviceUrl>\
                 <deviceUrl><key>{key}</key><disk>true</disk></deviceUrl></val>"
            ))
        };
        for key in ["/vm-1/ParaVirtualSCSIController0:1", "/vm-1/2001", "2001"] {
            assert!(find_device(&exported(key), disk).is_ok(), "{key}");
        }
        let other = exported("/vm-1/ParaVirtualSCSIController0:0");
        let error = find_device(&other, disk).unwrap_err().to_string();
        assert!(
            error.contains("(/vm-1/ParaVirtualSCSIController0:0) is certainly [a] vm/2001.vmdk"),
            "{error}"
        );
        let mut only = disk.clone();
        only.is_only = true;
        assert!(find_device(&other, &only).is_ok());
    }

    #[test]
    fn only_a_vmdk_of_the_right_size_is_accepted() {
        let head = |sectors: u64| [&b"KDMV\x03\0\0\0\0\0\0\0"[..], &sectors.to_le_bytes()].concat();
        for (head, capacity, is_right) in [
            (head(16), Some(8192), true),
            (head(128), Some(8192), true),
            (head(16), None, true),
            (head(15), Some(8192), false),
            (head(144), Some(8192), false),
            (head(u64::MAX), Some(8192), false),
            (b"QFI\xfb".to_vec(), None, false),
        ] {
            assert_eq!(check_head(&head, capacity).is_ok(), is_right, "{head:?}");
        }
    }

    #[test]
    fn the_host_of_a_url_may_be_the_server_that_was_asked() {
        let endpoint = Url::parse("https://vc:8443/sdk").unwrap();
        for (url, expected) in [
            ("https://*/nfc/52/disk-0.vmdk", Some("https://vc:8443/nfc/52/disk-0.vmdk")),
            ("https://esx1/nfc/52/d", Some("https://esx1/nfc/52/d")),
            ("file:///etc/passwd", None),
            ("", None),
        ] {
            let device = element(&format!("<deviceUrl><url>{url}</url></deviceUrl>"));
            let found = device_url(&device, &endpoint).ok();
            assert_eq!(found.as_ref().map(Url::as_str), expected);
        }
    }
}
