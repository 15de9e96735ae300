//! A scripted vSphere with changed block tracking, which VMware's simulator ([`super::Vsphere`])
//! does not support. It has one machine with one disk. The states of the disk are raw files of the
//! test, and the changes are found by comparing them.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rustls::ServerConfig;

use super::host::{EsxiHost, HostShared};
use crate::adversary::{Adversary, Body, Reply};
use crate::fail::OrFail;
use crate::serving::lock;
use crate::tools;
use crate::wire::Request;

/// Size of a tracked block.
pub const BLOCK_BYTES: u64 = 64 << 10;

/// The UUID of the machine.
pub const UUID: &str = "502a1c2e-0000-4000-8000-000000000001";

/// The name of the machine, in the form in which vSphere stores a slash.
pub const NAME: &str = "guest %2f one";

/// The file name by which users identify the disk.
pub const DISK: &str = "[ds] guest/disk.vmdk";

/// Most areas in one response, as in a real vSphere.
const AREAS: usize = 2000;

/// The name of every lease, as in a real vSphere.
const LEASE: &str = "session[52d8b5a3-1e2c]52b4c0de-0001";

/// The path of an exported disk.
const EXPORT: &str = "/nfc/52b4c0de/disk-0.vmdk";

const COOKIE: &str = "vmware_soap_session=tracked";

/// A state of the disk, with its snapshot.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// The name of the snapshot.
    pub name: String,
    /// The ID of the snapshot's managed object.
    pub object: String,
    /// The disk's change ID in the snapshot.
    pub change_id: String,
    raw: PathBuf,
}

/// Settings of the server that a test can change.
#[derive(Debug, Clone)]
pub struct Habits {
    /// False if changes are not tracked, so that disks have no change IDs.
    pub is_tracking: bool,
    /// The reported size of the disk, if not that of the snapshot's file.
    pub capacity: Option<u64>,
    /// The object IDs of snapshots that were removed.
    pub removed: Vec<String>,
    /// True if the next call fails because the session has expired.
    pub expires: bool,
    /// Responses that replace the normal ones, by method.
    pub instead: Vec<(&'static str, Reply)>,
    /// A method whose next call fails because the session has expired.
    pub expires_in: Option<&'static str>,
    /// True for a stand-alone host, whose service for disks has another name.
    pub is_host: bool,
    /// Number of requests for a lease that are refused because another one holds the machine.
    pub held: usize,
    /// True if the machine is running, so that only its snapshots can be exported.
    pub is_running: bool,
    /// The URL of an exported disk, if not one of this server.
    pub export_url: Option<String>,
    /// The thumbprint that a lease states.
    pub export_thumbprint: Option<String>,
    /// Number of bytes of an export before its connection breaks, or is silent if this is true.
    pub export_end: Option<(usize, bool)>,
}

/// A lease for the export of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lease {
    /// The object that is exported.
    pub object: String,
    /// `initializing`, `ready`, `done` or `aborted`.
    pub state: &'static str,
    /// The percentages that were reported.
    pub progress: Vec<String>,
}

/// A call that asks for changed areas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The offset at which the reply is to start.
    pub offset: u64,
    /// The change ID of the earlier state.
    pub change_id: String,
}

struct State {
    checkpoints: Vec<Checkpoint>,
    /// Areas that differ between two checkpoints, by the checkpoints' numbers. They are computed
    /// when the later checkpoint is taken, because a real vSphere responds without delay.
    areas: HashMap<(usize, usize), Vec<(u64, u64)>>,
    habits: Habits,
    queries: Vec<Query>,
    leases: Vec<Lease>,
    /// Stream-optimized VMDKs, by the object that is exported.
    exports: HashMap<String, Bytes>,
    logins: usize,
    /// True over HTTPS.
    is_encrypted: bool,
    /// The host that serves the disk, and the port that tickets name.
    host: Option<(Arc<HostShared>, u16)>,
    /// The host to which the machine moves after the next ticket.
    next_host: Option<(Arc<HostShared>, u16)>,
}

/// A running server on a loopback port of its own.
pub struct Tracked {
    server: Adversary,
    state: Arc<Mutex<State>>,
}

impl Tracked {
    /// Starts a vSphere whose disk has no states yet.
    pub fn start() -> Self {
        Self::serve(None)
    }

    /// Like [`start`](Self::start), but over HTTPS (see [`crate::certs`]).
    pub fn start_tls(tls: Arc<ServerConfig>) -> Self {
        Self::serve(Some(tls))
    }

    fn serve(tls: Option<Arc<ServerConfig>>) -> Self {
        let state = Arc::new(Mutex::new(State {
            checkpoints: Vec::new(),
            areas: HashMap::new(),
            habits: Habits {
                is_tracking: true,
                capacity: None,
                removed: Vec::new(),
                expires: false,
                instead: Vec::new(),
                expires_in: None,
                is_host: false,
                held: 0,
                is_running: false,
                export_url: None,
                export_thumbprint: None,
                export_end: None,
            },
            is_encrypted: tls.is_some(),
            host: None,
            next_host: None,
            queries: Vec::new(),
            leases: Vec::new(),
            exports: HashMap::new(),
            logins: 0,
        }));
        let shared = Arc::clone(&state);
        let answer = move |request: &Request, body: &str| match request.path() {
            EXPORT => lock(&shared).export(request),
            _ => lock(&shared).answer(body),
        };
        Self { server: Adversary::start_with(answer, tls), state }
    }

    /// `http://127.0.0.1:PORT`, or `https://…`.
    pub fn url(&self) -> String {
        self.server.url("")
    }

    /// Takes a snapshot whose disk has the content of `raw`. That file must not change afterwards.
    pub fn checkpoint(&self, raw: &Path) -> Checkpoint {
        let mut state = lock(&self.state);
        let number = state.checkpoints.len() + 1;
        let checkpoint = Checkpoint {
            name: format!("checkpoint {number}"),
            object: format!("snapshot-{number}"),
            change_id: format!("52 de c0 d9 b9 43 9d 10-61 d5 4c 1b e9 7b 65 63/{number:x}"),
            raw: raw.to_owned(),
        };
        let earlier: Vec<PathBuf> =
            state.checkpoints.iter().map(|before| before.raw.clone()).collect();
        for (index, before) in earlier.iter().enumerate() {
            state.areas.insert((index, number - 1), differences(before, raw));
        }
        state.checkpoints.push(checkpoint.clone());
        checkpoint
    }

    /// Changes the settings.
    pub fn habits(&self, change: impl FnOnce(&mut Habits)) {
        change(&mut lock(&self.state).habits);
    }

    /// Returns all calls for changed areas in order, and clears the list.
    pub fn take_queries(&self) -> Vec<Query> {
        std::mem::take(&mut lock(&self.state).queries)
    }

    /// Gives tickets for `host`, which users reach at `port`.
    pub fn use_host(&self, host: &EsxiHost, port: u16) {
        lock(&self.state).host = Some((host.shared(), port));
    }

    /// Moves the machine to `host` after the next ticket.
    pub fn move_to(&self, host: &EsxiHost) {
        lock(&self.state).next_host = Some((host.shared(), host.port()));
    }

    /// Exports the disk `raw` by leases for `object`: `vm-1` or a snapshot. Needs qemu-img.
    pub fn add_export(&self, object: &str, raw: &Path) {
        let vmdk = raw.with_extension("vmdk");
        let mut convert = Command::new(tools::find("qemu-img"));
        convert.args(["convert", "-f", "raw", "-O", "vmdk", "-o", "subformat=streamOptimized"]);
        let status = convert.arg(raw).arg(&vmdk).status().or_fail("qemu-img");
        assert!(status.success(), "qemu-img: {status}");
        let bytes = std::fs::read(vmdk).or_fail("a vmdk");
        lock(&self.state).exports.insert(object.to_owned(), bytes.into());
    }

    /// The exported disk of `object`.
    pub fn export_of(&self, object: &str) -> Bytes {
        lock(&self.state).exports.get(object).cloned().unwrap_or_default()
    }

    /// All leases so far.
    pub fn leases(&self) -> Vec<Lease> {
        lock(&self.state).leases.clone()
    }

    /// Number of logins so far.
    pub fn logins(&self) -> usize {
        lock(&self.state).logins
    }
}

impl State {
    fn answer(&mut self, body: &str) -> Reply {
        let method = body
            .split_once("<Body>")
            .and_then(|(_, call)| call.trim_start().strip_prefix('<'))
            .and_then(|call| call.split([' ', '>']).next())
            .unwrap_or_default();
        if let Some((_, reply)) = self.habits.instead.iter().find(|(wrong, _)| *wrong == method) {
            return reply.clone();
        }
        let needs_session = !matches!(method, "RetrieveServiceContent" | "Login" | "Logout");
        let is_expired = self.habits.expires_in.take_if(|expired| *expired == method).is_some();
        if is_expired || needs_session && std::mem::take(&mut self.habits.expires) {
            return fault("NotAuthenticated", "The session is not authenticated.");
        }
        let answer = match method {
            "RetrieveServiceContent" => {
                "<returnval><about><apiType>VirtualCenter</apiType></about><sessionManager>SessionManager</sessionManager>\
                 <searchIndex>SearchIndex</searchIndex><propertyCollector>propertyCollector</propertyCollector>\
                 <viewManager>ViewManager</viewManager><rootFolder>group-d1</rootFolder></returnval>"
                    .to_owned()
            }
            "Login" => {
                self.logins += 1;
                String::new()
            }
            "FindByUuid" => "<returnval type=\"VirtualMachine\">vm-1</returnval>".to_owned(),
            "ExportVm" | "ExportSnapshot" => match self.begin_lease(method, text_of(body, "_this")) {
                Ok(lease) => lease,
                Err(reply) => return reply,
            },
            "RetrievePropertiesEx" if text_of(body, "obj") == LEASE => self.lease_properties(),
            "HttpNfcLeaseProgress" | "HttpNfcLeaseComplete" | "HttpNfcLeaseAbort" => {
                let lease = self.leases.last_mut().filter(|lease| {
                    let is_initializing = lease.state == "initializing";
                    text_of(body, "_this") == LEASE
                        && (lease.state == "ready"
                            || is_initializing && method == "HttpNfcLeaseAbort")
                });
                let Some(lease) = lease else {
                    return fault("InvalidState", "The lease is not ready.");
                };
                match method {
                    "HttpNfcLeaseProgress" => {
                        lease.progress.push(text_of(body, "percent").to_owned());
                    }
                    "HttpNfcLeaseComplete" => lease.state = "done",
                    _ => lease.state = "aborted",
                }
                String::new()
            }
            "CreateContainerView" => "<returnval>session[52]view-1</returnval>".to_owned(),
            "RetrievePropertiesEx" if text_of(body, "obj").contains("view") => {
                self.machine_page(&["vm-1", "vm-2"], "<token>1</token>")
            }
            "ContinueRetrievePropertiesEx" if text_of(body, "token") == "1" => {
                self.machine_page(&["vm-3"], "")
            }
            "RetrievePropertiesEx" => match self.properties(text_of(body, "obj")) {
                Some(properties) => properties,
                None => return fault("ManagedObjectNotFound", "The object has already been deleted."),
            },
            "QueryChangedDiskAreas" => match self.changed(body) {
                Ok(areas) => areas,
                Err(reply) => return reply,
            },
            "RetrieveInternalContent" => {
                format!("<returnval><nfcService>{}</nfcService></returnval>", self.nfc_service())
            }
            "NfcGetServerNfcLibVersion" => {
                assert_eq!(text_of(body, "hostForAccess"), "host-9");
                "<returnval>11</returnval>".to_owned()
            }
            "NfcGetVmFiles" => match &self.host {
                Some((host, port))
                    if text_of(body, "_this") == self.nfc_service()
                        && text_of(body, "vm") == "vm-1" =>
                {
                    let ticket = host.ticket(*port);
                    self.host = self.next_host.take().or_else(|| self.host.take());
                    ticket
                }
                _ => return fault("ManagedObjectNotFound", "The object has already been deleted."),
            },
            _ => String::new(),
        };
        Reply::of(format!("<Envelope><Body><R>{answer}</R></Body></Envelope>"))
            .with("Set-Cookie", format!("{COOKIE}; Path=/; HttpOnly"))
    }

    fn begin_lease(&mut self, method: &str, object: &str) -> Result<String, Reply> {
        let is_machine = method == "ExportVm";
        if self.habits.held > 0 {
            self.habits.held -= 1;
            return Err(fault("TaskInProgress", "Another task is already in progress."));
        }
        if is_machine && self.habits.is_running {
            return Err(fault("InvalidPowerState", "The attempted operation cannot be performed."));
        }
        if is_machine != (object == "vm-1") || !self.exports.contains_key(object) {
            return Err(fault("ManagedObjectNotFound", "The object has already been deleted."));
        }
        let object = object.to_owned();
        self.leases.push(Lease { object, state: "initializing", ..Lease::default() });
        Ok(format!("<returnval type=\"HttpNfcLease\">{LEASE}</returnval>"))
    }

    /// The properties of the newest lease, which is ready when it is looked at a second time.
    fn lease_properties(&mut self) -> String {
        let lease = self.leases.last_mut().or_fail("a lease");
        let set = |name: &str, value: &str| {
            format!("<propSet><name>{name}</name><val>{value}</val></propSet>")
        };
        let mut properties = set("state", lease.state);
        if lease.state == "initializing" {
            lease.state = "ready";
        } else {
            let scheme = if self.is_encrypted { "https" } else { "http" };
            let own = format!("{scheme}://*{EXPORT}");
            let url = self.habits.export_url.as_ref().unwrap_or(&own);
            let thumbprint = self.habits.export_thumbprint.as_ref();
            let thumbprint = thumbprint
                .map(|text| format!("<sslThumbprint>{text}</sslThumbprint>"))
                .unwrap_or_default();
            properties += &set(
                "info",
                &format!(
                    "<leaseTimeout>1</leaseTimeout><deviceUrl><key>/vm-1/nvram</key><url>{scheme}://*/nfc/nvram</url>\
                     <disk>false</disk></deviceUrl><deviceUrl><key>/vm-1/VirtualLsiLogicController0:0</key><url>{url}</url>\
                     {thumbprint}<disk>true</disk><targetId>disk-0.vmdk</targetId></deviceUrl>"
                ),
            );
        }
        format!("<returnval><objects>{properties}</objects></returnval>")
    }

    /// The disk of the newest lease.
    fn export(&self, request: &Request) -> Reply {
        let lease = self.leases.last().filter(|lease| lease.state == "ready");
        let Some(bytes) = lease.and_then(|lease| self.exports.get(&lease.object)) else {
            return Reply::status(404, "no lease");
        };
        if request.header("cookie") != Some(COOKIE) || request.header("range").is_some() {
            return Reply::status(400, "a cookie, and no range");
        }
        match self.habits.export_end {
            Some((end, is_silent)) => {
                Reply { body: Body::Partial(bytes.slice(..end), is_silent), ..Reply::of("") }
            }
            None => Reply::chunked(bytes.clone()),
        }
    }

    /// A page of the list of machines. The second one has no disk, the third one the same name.
    fn machine_page(&self, objects: &[&str], token: &str) -> String {
        let objects = objects.iter().map(|object| {
            let name = if *object == "vm-1" { NAME } else { "other" };
            format!(
                "<objects><obj type=\"VirtualMachine\">{object}</obj><propSet><name>name</name><val>{name}</val></propSet>\
                 <propSet><name>config.instanceUuid</name><val>{UUID}</val></propSet></objects>"
            )
        });
        format!("<returnval>{token}{}</returnval>", objects.collect::<String>())
    }

    fn nfc_service(&self) -> &'static str {
        if self.habits.is_host { "ha-nfc-service" } else { "nfcService" }
    }

    fn find(&self, object: &str) -> Option<&Checkpoint> {
        let is_there = |checkpoint: &&Checkpoint| {
            checkpoint.object == object && !self.habits.removed.contains(&checkpoint.object)
        };
        self.checkpoints.iter().find(is_there)
    }

    /// The properties of the machine or of a snapshot.
    fn properties(&self, object: &str) -> Option<String> {
        let checkpoint = match object {
            "vm-1" => self.checkpoints.last(),
            _ => Some(self.find(object)?),
        };
        let disk = checkpoint.map(|checkpoint| self.disk(checkpoint, object == "vm-1"));
        let tree: String = self
            .checkpoints
            .iter()
            .filter(|checkpoint| !self.habits.removed.contains(&checkpoint.object))
            .map(|Checkpoint { name, object, .. }| {
                format!(
                    "<rootSnapshotList><snapshot>{object}</snapshot><name>{name}</name></rootSnapshotList>"
                )
            })
            .collect();
        let set = |name: &str, value: &str| {
            format!("<propSet><name>{name}</name><val>{value}</val></propSet>")
        };
        let devices = set("config.hardware.device", &disk.unwrap_or_default());
        let tracking = self.habits.is_tracking.to_string();
        let of_machine = [
            ("snapshot", &*tree),
            ("name", NAME),
            ("runtime.host", "host-9"),
            ("config.changeTrackingEnabled", &tracking),
        ];
        let of_machine = of_machine.into_iter().filter(|_| object == "vm-1");
        let others: String = of_machine.map(|(name, value)| set(name, value)).collect();
        Some(format!("<returnval><objects>{devices}{others}</objects></returnval>"))
    }

    fn disk(&self, checkpoint: &Checkpoint, is_machine: bool) -> String {
        let Checkpoint { object, change_id, raw, .. } = checkpoint;
        let file = if is_machine { DISK.to_owned() } else { file_of(object) };
        let capacity = self.habits.capacity.unwrap_or_else(|| length(raw));
        let id = if self.habits.is_tracking {
            format!("<changeId>{change_id}</changeId>")
        } else {
            String::new()
        };
        format!(
            "<VirtualDevice><key>2000</key><deviceInfo><label>Hard disk 1</label></deviceInfo><backing><fileName>{file}</fileName>{id}<parent><fileName>{DISK}</fileName></parent>\
             </backing><capacityInKB>{}</capacityInKB><capacityInBytes>{capacity}</capacityInBytes>\
             <diskObjectId>1-2000</diskObjectId></VirtualDevice>",
            capacity / 1024
        )
    }

    /// A page of changed areas, in descending order, since a real vSphere does not sort them.
    fn changed(&mut self, body: &str) -> Result<String, Reply> {
        let offset: u64 = text_of(body, "startOffset").parse().or_fail("an offset");
        let change_id = text_of(body, "changeId").to_owned();
        self.queries.push(Query { offset, change_id: change_id.clone() });
        let now = match text_of(body, "snapshot") {
            "" => self.checkpoints.last(),
            object => self.find(object),
        };
        let now = now.ok_or_else(|| {
            fault("ManagedObjectNotFound", "The object has already been deleted.")
        })?;
        let end = self.habits.capacity.unwrap_or_else(|| length(&now.raw));
        assert!(offset < end, "vSphere refuses to be asked at the end of the disk");
        let number = |is_it: &dyn Fn(&Checkpoint) -> bool| self.checkpoints.iter().position(is_it);
        // What is used differs from nothing.
        let used = (change_id == "*").then(|| differences(Path::new("/dev/null"), &now.raw));
        let areas = match used {
            Some(used) => used,
            None => {
                let before = number(&|checkpoint| checkpoint.change_id == change_id);
                let before = before.ok_or_else(|| {
                    fault("InvalidArgument", "A specified parameter was not correct: changeId")
                })?;
                let now = number(&|checkpoint| checkpoint.object == now.object);
                let now = now.or_fail("the snapshot");
                self.areas.get(&(before, now)).cloned().unwrap_or_default()
            }
        };
        let mut areas: Vec<_> = areas.iter().filter(|(start, _)| *start >= offset).collect();
        let described = if areas.len() > AREAS {
            areas.truncate(AREAS);
            areas.last().map_or(end, |(start, length)| start + length)
        } else {
            end
        };
        let areas: String = areas
            .iter()
            .rev()
            .map(|(start, length)| {
                format!(
                    "<changedArea><start>{start}</start><length>{length}</length></changedArea>"
                )
            })
            .collect();
        Ok(format!(
            "<returnval><startOffset>{offset}</startOffset><length>{}</length>{areas}</returnval>",
            described - offset
        ))
    }
}

/// The file of the disk in a snapshot.
pub fn file_of(object: &str) -> String {
    format!("[ds] guest/disk-{object}.vmdk")
}

/// A fault of this type.
pub fn fault(kind: &str, text: &str) -> Reply {
    Reply::status(
        500,
        format!(
            "<Envelope><Body><Fault><faultcode>ServerFaultCode</faultcode><faultstring>{text}</faultstring>\
             <detail><{kind}Fault xmlns=\"urn:vim25\" xsi:type=\"{kind}\"/></detail></Fault></Body></Envelope>"
        ),
    )
}

/// Returns start and length of the areas that differ, with adjacent blocks joined. If the disk
/// grew, the new part counts as zero before.
fn differences(before: &Path, now: &Path) -> Vec<(u64, u64)> {
    let (old, new) = (open(before), open(now));
    let (old_end, end) = (length(before), length(now));
    let mut areas: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    let (mut one, mut other) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    while at < end {
        let step = usize::try_from((end - at).min(1 << 20)).or_fail("a window");
        let known = usize::try_from(old_end.saturating_sub(at)).or_fail("a window").min(step);
        one[known..].fill(0);
        old.read_exact_at(&mut one[..known], at).or_fail("the disk before");
        new.read_exact_at(&mut other[..step], at).or_fail("the disk");
        if one[..step] != other[..step] {
            let block = usize::try_from(BLOCK_BYTES).or_fail("a block");
            for (index, (a, b)) in
                one[..step].chunks(block).zip(other[..step].chunks(block)).enumerate()
            {
                let start = at + index as u64 * BLOCK_BYTES;
                match areas.last_mut() {
                    _ if a == b => {}
                    Some((begun, length)) if *begun + *length == start => *length += a.len() as u64,
                    _ => areas.push((start, a.len() as u64)),
                }
            }
        }
        at += step as u64;
    }
    areas
}

/// Total size of the blocks in which the two disks differ.
pub fn changed_bytes(before: &Path, now: &Path) -> u64 {
    differences(before, now).iter().map(|(_, length)| length).sum()
}

fn open(path: &Path) -> File {
    File::open(path).or_fail(path.display())
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).or_fail(path.display()).len()
}

/// Returns the text of the first element `name` in a call.
fn text_of<'a>(body: &'a str, name: &str) -> &'a str {
    let elements = body.split('<');
    let mut texts = elements.filter_map(|element| {
        let rest = element.strip_prefix(name)?;
        let (attributes, text) = rest.split_once('>')?;
        (attributes.is_empty() || attributes.starts_with(' ')).then_some(text)
    });
    texts.next().unwrap_or_default()
}
