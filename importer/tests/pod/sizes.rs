//! VMware disks in stages, where vSphere, VMware's library and the target disagree on the size.

use testkit::disk;
use testkit::fail::OrFail;
use testkit::tools;
use testkit::vsphere::tracked::Tracked;
use testkit::vsphere::{TEST_DISK, TEST_PLUGIN, bring_test_image, replace_nbdkit};

use super::pod::MIB;
use super::warm::{GUEST_BYTES, Guest, Import};

/// An import whose nbdkit loads the stand-in as VMware's library, not as a plugin for tests.
fn import_without_test_plugin(vsphere: &Tracked, config: &str) -> Import {
    let mut import = Import::new(vsphere, config, false);
    let plugin = import.pod.path("plugin.so");
    std::fs::rename(import.pod.path(TEST_PLUGIN), &plugin).or_fail("the plugin");
    let library = import.pod.path("opt/vmware-vix-disklib-distrib/lib64");
    std::fs::create_dir_all(library).or_fail("the place of the library");
    let script = format!(
        "#!/bin/sh\nfor word; do shift; [ \"$word\" != vddk ] || word={}; set -- \"$@\" \"$word\"; done\nexec {} \"$@\"\n",
        plugin.display(),
        tools::find("nbdkit").display()
    );
    import.pod.set("PATH", replace_nbdkit(import.pod.root.path(), &script));
    import
}

#[test]
#[ignore = "server: nbdkit"]
fn vsphere_and_the_vmware_library_must_agree_on_the_size_of_the_disk() {
    let vsphere = Tracked::start();
    let guest = Guest::with_three_states(&vsphere);
    let mut import = import_without_test_plugin(&vsphere, &guest.config());
    let [(first, _), (second, now), _] = &guest.states[..] else { panic!("three states") };
    import.stage(&first.name, "");
    import.assert_succeeds();
    import.stage(&second.name, &first.change_id);
    for capacity in [GUEST_BYTES - 512, GUEST_BYTES + MIB, 2 << 30] {
        vsphere.habits(|habits| habits.capacity = Some(capacity));
        let sizes = format!(
            "the disk has {capacity} bytes according to vSphere and {GUEST_BYTES} according to the VDDK library"
        );
        import.assert_refused(&sizes);
        import.assert_refused("it was resized; import it again from the start");
    }
    vsphere.habits(|habits| habits.capacity = None);
    import.assert_succeeds();
    disk::assert_same(&import.disk(), now, GUEST_BYTES, "after all that");
}

#[test]
#[ignore = "server: nbdkit"]
fn a_disk_that_grew_between_stages_is_refused_if_the_target_did_not_grow() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let vsphere = Tracked::start();
    let mut states = Vec::new();
    for (seed, bytes) in [(1, 8 * MIB), (2, 16 * MIB)] {
        let raw = folder.path().join(format!("{seed}.raw"));
        std::fs::write(&raw, disk::content(seed, bytes)).or_fail("a state");
        states.push(raw);
    }
    // Both checkpoints have the first state: vSphere reports no change behind its end.
    let (first, second) = (vsphere.checkpoint(&states[0]), vsphere.checkpoint(&states[0]));
    let config = format!(
        "disk.{}={}\ndisk.{}={}\n",
        first.object,
        states[0].display(),
        second.object,
        states[1].display()
    );
    let mut import = import_without_test_plugin(&vsphere, &config);
    import.pod.unset("IMPORTER_IMAGE_SIZE");
    import.stage(&first.name, "");
    import.assert_succeeds();
    import.stage(&second.name, &first.change_id);
    vsphere.habits(|habits| habits.capacity = Some(16 * MIB));
    import.assert_refused("16777216");
}

/// As in CDI's own tests with a vSphere that tracks changes: the disk has 2 GiB for vSphere, and
/// 46137344 bytes for the plugin of the side-car.
#[test]
#[ignore = "slow: 2 s of CPU time"]
fn a_plugin_for_tests_may_serve_less_than_vsphere_reports_but_not_less_than_what_changed() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let states = ["first.raw", "second.raw", "beyond.raw"].map(|name| folder.path().join(name));
    let mut content = disk::sparse_content(6, 44 * MIB, 4);
    std::fs::write(&states[0], &content).or_fail("a state");
    let at = usize::try_from(40 * MIB).or_fail("a place");
    content[at..at + 70_000].fill(7);
    std::fs::write(&states[1], &content).or_fail("a state");
    content.resize(content.len() + 4096, 8);
    std::fs::write(&states[2], &content).or_fail("a state");
    let vsphere = Tracked::start();
    let first = vsphere.checkpoint(&states[0]);
    let second = vsphere.checkpoint(&states[1]);
    let beyond = vsphere.checkpoint(&states[2]);
    vsphere.habits(|habits| habits.capacity = Some(2 << 30));

    for on_device in [false, true] {
        let mut import = Import::new(&vsphere, "", on_device);
        std::fs::remove_dir_all(import.pod.path("vddk-args")).or_fail("the options of the library");
        import.pod.set("IMPORTER_THUMBPRINT", "testprint");
        bring_test_image(import.pod.root.path(), &states[0]);
        import.stage(&first.name, "");
        import.assert_succeeds();
        std::fs::copy(&states[1], import.pod.path(TEST_DISK)).or_fail("the disk of the side-car");
        import.stage(&second.name, &first.name);
        import.assert_succeeds();
        disk::assert_same(&import.disk(), &states[1], 44 * MIB, "the second stage");
        import.stage(&beyond.name, &second.change_id);
        import.assert_refused(
            "2147483648 bytes according to vSphere and 46137344 according to the VDDK library",
        );
    }
}
