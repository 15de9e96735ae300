//! Machines and disks by name, and what `info` says about them.

use std::net::TcpListener;

use testkit::fail::OrFail;
use testkit::process::Program;
use testkit::vsphere::tracked::UUID;

use super::{HabitChange, PASSWORD, Scene, content, no_permission, refused};
use crate::place::{MIB, SOURCE_FAILED, USAGE};

#[test]
fn a_machine_and_its_disk_are_named_in_several_ways() {
    let content = content();
    let scene = Scene::new(&content);
    let of_state = |address: &str| {
        let user = scene.place.as_user("user", PASSWORD);
        scene.program_at("import", address, None, None).args(user).arg(scene.place.target())
    };
    let states = scene.states.each_ref().map(|(_, raw)| std::fs::read(raw).or_fail("a state"));
    for (address, state) in [
        ("vm-1/0", 1),
        ("guest%20%2F%20one/Hard disk 1", 1),
        ("guest %252f one/[ds] guest/disk.vmdk", 1),
        (&format!("{UUID}/%5Bds%5D%20guest%2Fdisk.vmdk?snapshot=checkpoint 1"), 0),
        ("vm-1/0?snapshot=snapshot-1", 0),
    ] {
        let finished = scene.place.assert_imports(of_state(address), &states[state], address);
        scene.assert_discreet(&finished.stderr);
    }
    for (address, sentence) in [
        (
            "vm-4/0",
            "no machine \"vm-4\": there are guest %2f one (vm-1), other (vm-2), other (vm-3)",
        ),
        (
            "other/0",
            "2 machines called \"other\", use the id of one: there are other (vm-2), other (vm-3)",
        ),
        (
            "vm-1/1",
            "no disk \"1\" in the machine vm-1 or its snapshots: there are 0 (Hard disk 1, [ds] guest/disk.vmdk)",
        ),
        ("vm-1/0?snapshot=x", "there are checkpoint 2 (snapshot-2), checkpoint 1 (snapshot-1)"),
    ] {
        scene.place.assert_refused(of_state(address), SOURCE_FAILED, sentence);
    }
}

#[test]
fn info_lists_machines_and_disks_and_tries_each_step_to_the_first_disk() {
    let scene = Scene::new(&content());
    let info = |address: &str, options: &[&str]| {
        let program = scene.program_at("info", address, None, None).args(options);
        let finished = program.args(scene.place.as_user("user", PASSWORD)).run();
        finished.assert_success(address);
        scene.assert_discreet(&format!("{}{}", finished.stdout, finished.stderr));
        finished.stdout
    };
    let json = |address: &str| -> serde_json::Value {
        let text = info(address, &["--json", "--transport", "nfc"]);
        serde_json::from_str(&text).or_fail(&text)
    };
    let machines = json("");
    assert_eq!(machines["vmware"]["machines"][2]["id"], "vm-3", "{machines}");
    assert_eq!(machines["vmware"]["machines"][0]["uuid"], UUID, "{machines}");
    assert!(machines["format"].is_null(), "{machines}");
    assert!(
        info("", &[]).contains("\nmachines           3\nmachine            guest %2f one (vm-1)\n")
    );

    let machine = &json("vm-1")["vmware"]["machine"];
    assert_eq!(machine["disks"][0]["capacity"], 8 * MIB, "{machine}");
    assert_eq!(machine["snapshots"][1]["id"], "snapshot-1", "{machine}");
    let steps = machine["steps"].as_array().or_fail("steps");
    let failed: Vec<_> = steps.iter().filter(|step| step["works"] == false).collect();
    assert!(failed.len() == 1 && failed[0]["step"] == "vddk", "{machine}");

    let port = scene.host.port();
    let text = info("guest %252f one?snapshot=checkpoint 1", &[]);
    for line in [
        "change tracking    on",
        "disk 0             Hard disk 1\n  file             [ds] guest/disk.vmdk\n  capacity         8.00 MiB (8388608 bytes)",
        "vddk               fails: VMware's library is not in ",
        "nfc                works: version 11: ",
        &format!("ticket             works: vSphere gives one for port {port} of 127.0.0.1"),
        &format!("port               works: TCP to port {port} of 127.0.0.1 is open"),
        "greeting           works: 220 VMware Authentication Daemon Version 1.10: SSL Required, ",
        "capabilities       works: ",
        "certificate        works: it matches the thumbprint of the ticket: sha256:",
        "service            works: vpxa-nfcssl accepts the ticket",
        "open               works: [ds] guest/disk-snapshot-1.vmdk has 8388608 bytes, as vSphere says",
        "used areas         works: the host lists them",
    ] {
        assert!(text.contains(&format!("\n{line}")), "{line}: {text}");
    }
}

#[test]
fn info_names_the_step_that_fails() {
    let scene = Scene::new(&content());
    let wrong = "00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33".to_owned();
    let old = || testkit::vsphere::tracked::fault("InvalidRequest", "Invalid request");
    let changes: [(&str, HabitChange<'_>); 5] = [
        (
            "used areas         works: the host does not list them, vSphere does: error 5: not here",
            &|habits| {
                habits.instead = Some((13, |operation| refused(13, operation, 48)));
            },
        ),
        ("open               fails: ", &|habits| habits.grown = 512),
        ("service            fails: ", &|habits| habits.refused_tickets = 1),
        ("certificate        fails: ", &|habits| habits.thumbprint = Some(wrong.clone())),
        ("capabilities       fails: ", &|habits| habits.has_sha256 = false),
    ];
    let assert_shows = |line: &str| {
        let program = scene.program_at("info", "vm-1", None, None).args(["--transport", "nfc"]);
        let finished = program.args(scene.place.as_user("user", PASSWORD)).run();
        finished.assert_success(line);
        assert!(finished.stdout.contains(&format!("\n{line}")), "{line}: {}", finished.stdout);
        scene.assert_discreet(&format!("{}{}", finished.stdout, finished.stderr));
    };
    for (line, change) in changes {
        scene.host.habits(change);
        assert_shows(line);
    }
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
    scene.vsphere.use_host(&scene.host, closed.or_fail("a port").port());
    scene.vsphere.habits(|habits| habits.instead = vec![("NfcGetServerNfcLibVersion", old())]);
    assert_shows("port               fails: ");
    assert_shows("nfc                works: the host does not tell it");
    scene.vsphere.habits(|habits| habits.instead = vec![("NfcGetVmFiles", no_permission())]);
    assert_shows("ticket             fails: ");
}

#[test]
fn a_user_in_the_address_needs_a_password_file() {
    let content = content();
    let scene = Scene::new(&content);
    let server = scene.vsphere.url();
    let import = |user: &str, options: &[String]| {
        let address =
            format!("vmware+{}/vm-1/0", server.replacen("://", &format!("://{user}@"), 1));
        Program::new(crate::BINARY)
            .env("CDI_WORKERS_TEST_ROOT", scene.place.path(""))
            .args(["import", &address])
            .args(options)
            .args(scene.place.trusting(&scene.authority))
            .arg(scene.place.target())
    };
    let login = scene.place.as_user("user", PASSWORD);
    let state = std::fs::read(&scene.states[1].1).or_fail("a state");
    scene.place.assert_imports(import("user", &login[2..]), &state, "a user in the address");
    for (user, options, sentence) in [
        ("user", &login[..0], "give --user and --password-file"),
        ("user", &login[..], "the address names a user, and so does --user"),
        ("user:secret", &login[2..], "the address contains a password"),
    ] {
        let finished = scene.place.assert_refused(import(user, options), USAGE, sentence);
        scene.assert_discreet(&finished.stderr);
    }
}
