//! VMware disks that a lease of vSphere exports as images, and that no lease is left behind.

use std::path::PathBuf;

use rustix::process::Signal;
use testkit::adversary::{Adversary, Reply};
use testkit::certs::{Authority, Identity, KeyKind};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::ports;
use testkit::process::Program;
use testkit::vsphere::host::EsxiHost;
use testkit::vsphere::tracked::{Checkpoint, DISK, Tracked, UUID, fault};
use testkit::wait;

use crate::nfc::{PASSWORD, pod_of};
use crate::place::{MIB, Place, SOURCE_FAILED};

/// Exit code of a process that ends because of SIGTERM (128 + 15).
const TERMINATED: i32 = 143;

/// A vSphere that exports a machine and a snapshot of it, and a host whose port is closed.
struct Scene {
    place: Place,
    authority: Authority,
    identity: Identity,
    vsphere: Tracked,
    host: EsxiHost,
    content: Vec<u8>,
    snapshot: Checkpoint,
}

impl Scene {
    fn new() -> Self {
        let (place, authority) = (Place::new(), Authority::new().or_fail("an authority"));
        let content = disk::sparse_content(5, 8 * MIB, 8);
        let raw = PathBuf::from(place.write("raw", &content));
        let identity = authority.server(KeyKind::Ecdsa).or_fail("a certificate");
        let vsphere = Tracked::start_tls(identity.server_config().or_fail("TLS"));
        let host = EsxiHost::start(&identity);
        let [closed] = ports::free();
        vsphere.use_host(&host, closed.port());
        let snapshot = vsphere.checkpoint(&raw);
        for object in ["vm-1", &snapshot.object] {
            vsphere.add_export(object, &raw);
        }
        Self { place, authority, identity, vsphere, host, content, snapshot }
    }

    /// An import with `--transport`.
    fn import(&self, transport: &str) -> Program {
        self.program("import", transport).arg(self.place.target())
    }

    fn program(&self, command: &str, transport: &str) -> Program {
        let address = format!("vmware+{}/?vm={UUID}&disk={DISK}", self.vsphere.url());
        Program::new(crate::BINARY)
            .env("CDI_WORKERS_TEST_ROOT", self.place.path(""))
            .args([command, &address, "--transport", transport])
            .args(self.place.as_user("user", PASSWORD))
            .args(self.place.trusting(&self.authority))
    }

    /// Asserts that the import makes the disk, and completes a lease for `object`.
    #[track_caller]
    fn assert_imports(&self, program: Program, object: &str, case: &str) -> String {
        let finished = self.place.assert_imports(program, &self.content, case);
        assert!(!finished.stderr.contains(PASSWORD), "{}", finished.stderr);
        let lease = self.vsphere.leases().pop().or_fail(case);
        assert_eq!((&*lease.object, lease.state), (object, "done"), "{case}");
        finished.stderr
    }

    /// Asserts that the import fails with this sentence, and that `leases` are aborted.
    #[track_caller]
    fn assert_refused(&self, program: Program, sentence: &str, leases: usize) {
        let finished = self.place.assert_refused(program, SOURCE_FAILED, sentence);
        assert!(!finished.stderr.contains(PASSWORD), "{}", finished.stderr);
        self.assert_aborted(leases, sentence);
    }

    #[track_caller]
    fn assert_aborted(&self, leases: usize, case: &str) {
        let states: Vec<_> = self.vsphere.leases().iter().map(|lease| lease.state).collect();
        assert_eq!(states, vec!["aborted"; leases], "{case}");
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn machines_and_snapshots_are_exported_and_their_leases_completed() {
    let scene = Scene::new();
    scene.assert_imports(scene.import("lease"), "vm-1", "a stopped machine");
    scene.vsphere.habits(|habits| {
        habits.is_running = true;
        habits.export_thumbprint = Some(scene.host.thumbprint());
    });
    let program = scene.import("lease").args(["--checkpoint", &scene.snapshot.name]);
    scene.assert_imports(program, &scene.snapshot.object, "a snapshot");
    let sentence = "127.0.0.1: vSphere refuses ExportVm: The attempted operation cannot be performed. (InvalidPowerState): the \
                    machine is running: take a snapshot";
    scene.place.assert_refused(scene.import("lease"), SOURCE_FAILED, sentence);
    assert_eq!(scene.vsphere.leases().len(), 2);
    let program = scene.program("info", "lease").args(["--checkpoint", &scene.snapshot.name]);
    let info = program.run();
    info.assert_success("info");
    assert!(info.stdout.contains("stream"), "{}", info.stdout);
    assert_eq!(scene.vsphere.leases().pop().map(|lease| lease.state), Some("aborted"));
    let name = &*scene.snapshot.name;
    let program = scene.import("lease").args(["--checkpoint", name, "--previous-checkpoint", name]);
    scene.place.assert_refused(program, SOURCE_FAILED, "use --transport nfc or vddk");
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_closed_port_of_the_host_leads_to_a_lease_in_pods_too() {
    let scene = Scene::new();
    let program = scene.import("auto").args(["--retries", "0"]);
    let words = scene.assert_imports(program, "vm-1", "auto");
    assert!(words.contains("the disk is exported over HTTPS instead"), "{words}");
    let mut pod = pod_of(&scene.vsphere);
    pod.set("IMPORTER_THUMBPRINT", scene.host.thumbprint());
    let finished = pod.run();
    assert_eq!(finished.code(), 0, "{:?} {}", pod.message(), finished.stderr);
    disk::assert_same(&pod.disk(), &scene.place.path("raw"), 8 * MIB, "a pod");
    assert!(scene.vsphere.leases().iter().all(|lease| lease.state == "done"));
}

#[test]
#[ignore = "tools: qemu-img"]
fn broken_and_stopped_exports_are_aborted() {
    let scene = Scene::new();
    let half = scene.vsphere.export_of("vm-1").len() / 2;
    scene.vsphere.habits(|habits| habits.export_end = Some((half, false)));
    let sentence = format!(
        "the export of the disk broke after {half} bytes, and vSphere cannot resume it: import it again: "
    );
    scene.assert_refused(scene.import("lease"), &sentence, 1);

    scene.vsphere.habits(|habits| habits.export_end = Some((half, true)));
    let running = scene.import("lease").start();
    // The first number is reported before the bytes have come.
    let reports = || scene.vsphere.leases().last().map_or(0, |lease| lease.progress.len());
    wait::until(|| "no progress", || reports() >= 2);
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), TERMINATED);
    scene.assert_aborted(2, "SIGTERM");

    scene.vsphere.habits(|habits| habits.held = usize::MAX);
    let running = scene.import("lease").arg("-v").start();
    running.wait_for_line("the source is not ready");
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), TERMINATED);
    scene.assert_aborted(2, "SIGTERM while another lease holds the machine");
}

fn gone() -> Reply {
    fault("Timedout", "The lease has timed out.")
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_lease_of_somebody_else_is_waited_for_and_an_unfinished_one_is_a_failure() {
    let scene = Scene::new();
    scene.vsphere.habits(|habits| habits.held = 2);
    let words = scene.assert_imports(scene.import("lease").arg("-v"), "vm-1", "a held machine");
    assert!(words.contains("wait until it has ended, or end it"), "{words}");
    scene.vsphere.habits(|habits| habits.held = usize::MAX);
    let program = scene.import("lease").args(["--retries", "1"]);
    let sentence = "127.0.0.1: vSphere refuses ExportVm: Another task is already in progress. (TaskInProgress): another export";
    scene.place.assert_refused(program, SOURCE_FAILED, sentence);
    scene.vsphere.habits(|habits| {
        habits.held = 0;
        habits.instead = vec![("HttpNfcLeaseComplete", gone())];
    });
    let sentence = "vSphere refuses HttpNfcLeaseComplete: The lease has timed out. (Timedout)";
    scene.place.assert_refused(scene.import("lease"), SOURCE_FAILED, sentence);
    assert_eq!(scene.vsphere.leases().pop().map(|lease| lease.state), Some("aborted"));
}

#[test]
#[ignore = "tools: qemu-img"]
fn other_hosts_need_the_certificate_of_the_lease_and_get_no_cookie() {
    let scene = Scene::new();
    let vmdk = scene.vsphere.export_of("vm-1");
    let answer = move |_: &_, _: &str| Reply::of(vmdk.clone());
    let other = Adversary::start_tls(answer, scene.identity.server_config().or_fail("TLS"));
    scene.vsphere.habits(|habits| {
        habits.export_url = Some(other.url("/disk.vmdk"));
        habits.export_thumbprint = Some("AA:".repeat(19) + "AA");
    });
    scene.assert_refused(scene.import("lease"), "does not have the thumbprint sha1:aaaa", 1);
    assert!(other.requests().is_empty());
    scene.vsphere.habits(|habits| habits.export_thumbprint = Some(scene.host.thumbprint()));
    scene.assert_imports(scene.import("lease"), "vm-1", "another host");
    let requests = other.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].0.header("cookie"), None);
    scene.vsphere.habits(|habits| habits.capacity = Some(16 * MIB));
    let sentence = "16777216 bytes according to vSphere and 8388608 according to the export";
    scene.place.assert_refused(scene.import("lease"), SOURCE_FAILED, sentence);
}
