//! vSphere servers and libraries that are malicious or broken.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use testkit::adversary::{Adversary, Reply};
use testkit::cases::check_all;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::Finished;
use testkit::vsphere::{bring_stand_in, replace_nbdkit};
use testkit::wait;

use super::pod::{MIB, Pod};

const PASSWORD: &str = "swordfish";
const COOKIE: &str = "vmware_soap_session=the-session";

/// Most bytes of message and log about an attack, including the log lines of every step.
const MAX_WORDS_BYTES: usize = 16 << 10;

const FILE: &str = "[ds] vm/disk.vmdk";

/// Text that clears a terminal, reverses what follows, and is megabytes long.
fn loud() -> String {
    format!("&#27;[2J\u{202e}\u{2028}begin{}", "x".repeat(3 << 20))
}

/// Returns a wrong reply for the attacked method, and none for the others.
type Attack = Arc<dyn Fn(&str) -> Option<Reply> + Send + Sync>;

struct Case(&'static str, Attack);

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Case {
    fn on(name: &'static str, method: &'static str, reply: Reply) -> Self {
        Self(name, Arc::new(move |called| (called == method).then(|| reply.clone())))
    }
}

const METHODS: [&str; 5] =
    ["RetrieveServiceContent", "Login", "FindByUuid", "RetrievePropertiesEx", "Logout"];

fn vsphere(attack: Attack) -> Adversary {
    Adversary::start(move |_, body| {
        let called = METHODS.iter().find(|method| body.contains(&format!("<{method} ")));
        let called = called.copied().unwrap_or_default();
        attack(called).unwrap_or_else(|| honest(called))
    })
}

fn honest(method: &str) -> Reply {
    let answer = match method {
        "RetrieveServiceContent" => {
            "<returnval><sessionManager>SessionManager</sessionManager><searchIndex>SearchIndex</searchIndex>\
             <propertyCollector>propertyCollector</propertyCollector></returnval>"
                .to_owned()
        }
        "FindByUuid" => machine("vm-1"),
        "RetrievePropertiesEx" => properties(FILE, "snapshot-1"),
        _ => String::new(),
    };
    soap(&answer).with("Set-Cookie", format!("{COOKIE}; Path=/; HttpOnly"))
}

fn soap(answer: &str) -> Reply {
    Reply::of(format!(
        "<?xml version=\"1.0\"?><Envelope><Body><Response>{answer}</Response></Body></Envelope>"
    ))
}

fn fault(text: &str) -> Reply {
    let fault = format!(
        "<Fault><faultcode>ServerFaultCode</faultcode><faultstring>{text}</faultstring></Fault>"
    );
    Reply::status(500, format!("<Envelope><Body>{fault}</Body></Envelope>"))
}

fn machine(name: &str) -> String {
    format!("<returnval type=\"VirtualMachine\">{name}</returnval>")
}

/// Properties of a machine with a disk in `file`, and with a snapshot of the object `snapshot`.
fn properties(file: &str, snapshot: &str) -> String {
    let set = |name: &str, value: &str| {
        format!("<propSet><name>{name}</name><val>{value}</val></propSet>")
    };
    let device = format!(
        "<VirtualDevice><key>2000</key><backing><fileName>{file}</fileName></backing>\
         <capacityInKB>1024</capacityInKB></VirtualDevice>"
    );
    let tree = format!(
        "<rootSnapshotList><snapshot>{snapshot}</snapshot><name>first</name></rootSnapshotList>"
    );
    let sets = [set("config.hardware.device", &device), set("snapshot", &tree)].concat();
    format!("<returnval><objects>{sets}</objects></returnval>")
}

/// A pod with everything that a side-car image provides, and a stand-in for nbdkit.
fn pod(server: &Adversary) -> Pod {
    let mut pod = Pod::new(&[
        ("IMPORTER_SOURCE", "vddk"),
        ("IMPORTER_ENDPOINT", &server.url("")),
        ("IMPORTER_UUID", "uuid"),
        ("IMPORTER_BACKING_FILE", FILE),
        ("IMPORTER_ACCESS_KEY_ID", "user"),
        ("IMPORTER_SECRET_KEY", PASSWORD),
    ]);
    let served = pod.path("served");
    std::fs::write(&served, disk::content(1, MIB)).or_fail("the disk of the machine");
    pod.set("PATH", bring_stand_in(pod.root.path(), &format!("disk={}\n", served.display())));
    pod
}

/// Puts a script in place of the stand-in for nbdkit, which is `$NBDKIT` in the script.
fn with_nbdkit(pod: &Pod, script: &str) {
    let (program, nbdkit) = (pod.path("bin/nbdkit"), pod.path("bin/stand-in"));
    std::fs::rename(program, &nbdkit).or_fail("the stand-in");
    let script = format!("#!/bin/sh\nNBDKIT={}\n{script}\n", nbdkit.display());
    replace_nbdkit(pod.root.path(), &script);
}

/// Asserts what holds for every attack: an error without a crash or disk, bounded memory, and
/// short output without secrets and control characters. Returns the message.
#[track_caller]
fn assert_refused(pod: &Pod, finished: &Finished, name: &str) -> String {
    assert_eq!(finished.code(), 1, "{name}: {}", finished.stderr);
    assert!(!finished.crashed() && !pod.disk().exists(), "{name}: {}", finished.stderr);
    let message = pod.message().or_fail("a message");
    let expected = "Unable to connect to vddk data source: ";
    assert!(message.starts_with(expected), "{name}: {message}");
    let words = format!("{message}{}", finished.stderr);
    assert!(words.len() <= MAX_WORDS_BYTES, "{name}: {} bytes of words", words.len());
    for char in ['\u{1b}', '\u{202e}', '\u{2028}'] {
        assert!(!words.contains(char), "{name}: {char:?} in {words}");
    }
    assert!(!words.contains(PASSWORD) && !words.contains("the-session"), "{name}: {words}");
    message
}

#[test]
#[ignore = "tools: qemu-nbd"]
fn honest_replies_are_accepted_and_the_session_follows_no_redirect() {
    let stranger = Adversary::start(|_, _| soap(""));
    let server = vsphere(Arc::new(|_| None));
    let honest = pod(&server);
    let finished = honest.assert_succeeds_with(
        r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"vddkInfo":{"Version":"7.0.3","Host":"esx1.example.com"},"message":"Import Complete"}"#,
    );
    assert!(std::fs::read(honest.disk()).or_fail("the disk") == disk::content(1, MIB));
    // nbdkit needs files, so that only system calls are restricted, after its start.
    for line in ["Log line from nbdkit: ", "sandbox: files not restricted (nbdkit"] {
        assert!(finished.stderr.contains(line), "{line}: {}", finished.stderr);
    }
    assert!(!finished.stderr.contains(PASSWORD), "{}", finished.stderr);
    let requests = server.requests();
    assert!(
        requests.iter().skip(1).all(|(request, _)| request.header("cookie") == Some(COOKIE)),
        "{requests:?}"
    );
    for method in METHODS.iter().take(4) {
        for status in [301, 302, 307, 308] {
            let redirect = Reply::status(status, "").with("Location", stranger.url("/sdk"));
            let Case(name, attack) = Case::on("redirect", method, redirect);
            let server = vsphere(attack);
            let pod = pod(&server);
            assert_refused(&pod, &pod.run(), name);
            assert!(stranger.requests().is_empty(), "{method} {status}");
        }
    }
}

#[test]
fn texts_of_vsphere_are_shortened_and_escaped() {
    let cases = METHODS.iter().take(4).map(|method| Case::on(method, method, fault(&loud())));
    check_all(cases.collect::<Vec<_>>(), |Case(name, attack)| {
        let server = vsphere(Arc::clone(attack));
        let pod = pod(&server);
        let message = assert_refused(&pod, &pod.run(), name);
        assert!(
            message.contains(&format!("vSphere refuses {name}: ")) && message.contains("begin"),
            "{message}"
        );
    });
}

#[test]
fn malicious_documents_take_bounded_memory_and_time() {
    let elements = |one: &str| soap(&one.repeat(199_000));
    let mut bomb = String::from("<!DOCTYPE x [<!ENTITY a0 \"ha\">");
    for n in 1..30 {
        bomb += &format!("<!ENTITY a{n} \"&a{0};&a{0};\">", n - 1);
    }
    let attributes: String = (0..1_000_000).map(|n| format!("a{n}='' ")).collect();
    let first = "RetrieveServiceContent";
    check_all(
        [
            Case::on("elements", first, elements("<a/>")),
            Case::on("elements with ids and texts", first, elements("<a id='i'>t</a>")),
            Case::on(
                "elements without end",
                first,
                Reply::endless("<a/>".repeat(4096), Duration::ZERO),
            ),
            Case::on("depth", first, soap(&"<a>".repeat(1_000_000))),
            Case::on(
                "entities",
                first,
                Reply::of(format!("{bomb}]><Envelope><Body>&a29;</Body></Envelope>")),
            ),
            Case::on("attributes", first, soap(&format!("<a {attributes}/>"))),
            Case::on("a long name", first, soap(&format!("<{}/>", "a".repeat(7 << 20)))),
            Case::on("a long text", "FindByUuid", soap(&machine(&"a".repeat(7 << 20)))),
            Case::on("a page", "Login", Reply::of("<html>log in</html>")),
            Case::on("nothing", "FindByUuid", Reply::of("")),
            Case::on("no machine", "FindByUuid", soap("")),
        ],
        |Case(name, attack)| {
            let server = vsphere(Arc::clone(attack));
            let pod = pod(&server);
            assert_refused(&pod, &pod.run(), name);
        },
    );
}

#[test]
fn names_of_objects_cannot_become_options_of_nbdkit() {
    for name in [
        "vm-1 password=+/etc/passwd",
        "vm-1&#10;libdir=/tmp",
        "--run=touch",
        "a=b",
        "../vm",
        "",
        &"a".repeat(5000),
    ] {
        let Case(_, attack) = Case::on("machine", "FindByUuid", soap(&machine(name)));
        let server = vsphere(attack);
        let pod = pod(&server);
        let finished = pod.run();
        assert_refused(&pod, &finished, name);
        assert!(!finished.stderr.contains("from nbdkit"), "{name:?}: {}", finished.stderr);
    }
    for (file, snapshot) in [
        (FILE, "snapshot-1&#10;x=y"),
        ("[ds] a&#10;password=b", "snapshot-1"),
        (&*format!("[ds] {}", "a".repeat(5000)), "snapshot-1"),
    ] {
        let wrong = properties(file, snapshot);
        // The first answer is about the machine, which names the snapshot; the second one is about
        // the snapshot, and names the file.
        let (asked, of_snapshot) = (AtomicUsize::new(0), usize::from(file != FILE));
        let attack = move |method: &str| {
            let is_meant = method == "RetrievePropertiesEx"
                && asked.fetch_add(1, Ordering::Relaxed) == of_snapshot;
            is_meant.then(|| soap(&wrong))
        };
        let server = vsphere(Arc::new(attack));
        let mut pod = pod(&server);
        pod.set("IMPORTER_CURRENT_CHECKPOINT", "first");
        let finished = pod.run();
        assert_refused(&pod, &finished, snapshot);
        assert!(!finished.stderr.contains("from nbdkit"), "{file:?}: {}", finished.stderr);
    }
}

#[test]
#[ignore = "tools: qemu-nbd"]
fn nbdkit_gets_no_secret_but_the_file_with_its_password() {
    let server = vsphere(Arc::new(|_| None));
    let mut pod = pod(&server);
    pod.set("AWS_SECRET_ACCESS_KEY", PASSWORD);
    let seen = pod.path("seen");
    with_nbdkit(
        &pod,
        &format!("{{ env; echo \"$@\"; }} >> {}\nexec $NBDKIT \"$@\"", seen.display()),
    );
    pod.run().assert_success("through the script");
    let seen = std::fs::read_to_string(seen).or_fail("what nbdkit was told");
    assert!(seen.contains("password=+/"), "{seen}");
    assert!(
        seen.contains("PATH=") && !seen.contains(PASSWORD) && !seen.contains("IMPORTER_"),
        "{seen}"
    );
}

#[test]
#[ignore = "slow: waits 15 s"]
fn a_library_that_hangs_is_given_up_and_stopped() {
    let server = vsphere(Arc::new(|_| None));
    let hung = pod(&server);
    with_nbdkit(&hung, "exec sleep 1000");
    let message = assert_refused(&hung, &hung.run(), "hanging");
    assert!(message.contains("nbdkit is not ready after 15 s"), "{message}");

    let stopped = pod(&server);
    let started = stopped.path("started");
    with_nbdkit(&stopped, &format!("touch {}\nexec sleep 1000", started.display()));
    let running = stopped.program().start();
    wait::until(|| "nbdkit is not started", || started.exists());
    running.signal(Signal::TERM);
    let finished = running.wait();
    // The script would sleep much longer: the signal ends both processes.
    assert_eq!(finished.code(), 143, "{}", finished.stderr);
}

#[test]
#[ignore = "tools: qemu-nbd"]
fn the_output_of_nbdkit_is_logged_without_passwords_and_control_characters() {
    let server = vsphere(Arc::new(|_| None));
    let pod = pod(&server);
    let long_host = "h".repeat(3000);
    let script = format!(
        "head -c 100000000 /dev/zero\n\
         {{ printf '\\033[2J\\342\\200\\256draws\\n'\n\
           head -c 4090 /dev/zero | tr '\\0' 'x'; printf 'password={PASSWORD}\\n'\n\
           printf \"DISKLIB-LINK  : Opened 'vpxa-nfcssl://[ds] d.vmdk@{long_host}:902' (0x1e): x\\n\"\n\
           printf 'VMware VixDiskLib ({long_host}) Release build-1\\n'; }} >&2\n\
         exec $NBDKIT \"$@\""
    );
    with_nbdkit(&pod, &script);
    let finished = pod.run();
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    let message = pod.message().or_fail("a message");
    assert!(message.len() < 1024 && message.contains("Import Complete"), "{message}");
    assert!(
        finished.stderr.contains("draws") && !finished.stderr.contains(PASSWORD),
        "{}",
        finished.stderr
    );
    for char in ['\u{1b}', '\u{202e}'] {
        assert!(!finished.stderr.contains(char), "{char:?}: {}", finished.stderr);
    }
}
