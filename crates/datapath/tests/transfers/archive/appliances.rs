//! OVA: what `tar` makes of a description, a manifest and a disk.

use std::path::Path;

use datapath::archive::ArchiveErrorKind;
use datapath::facts::RouteTaken;
use datapath::inspect::inspect_image;
use datapath::options::{PayloadKind, ReadOptions, WriteOptions};
use datapath::transfer::TransferReport;
use datapath::{Error, transfer_image};
use diskimage::Format;
use testkit::images::Subformat;
use testkit::{disk, tools};

use crate::archive::refusal;
use crate::archive::tape::{Fields, Tape};
use crate::common::{Memory, fast_folder, file};

const DISK_BYTES: u64 = 5 << 20;

const OVA: PayloadKind = PayloadKind::Appliance(None);

/// Transfers to a file that is not there afterwards unless that was a success.
fn import(ova: &[u8], content: PayloadKind) -> Result<(TransferReport, Vec<u8>), Error> {
    let folder = fast_folder();
    let target = file(&folder.path().join("disk"));
    match transfer_image(
        &Memory::ranged(ova.to_vec()),
        content,
        &target,
        &ReadOptions::default(),
        &WriteOptions::default(),
    ) {
        Ok(report) => Ok((report, std::fs::read(&target.path).unwrap())),
        Err(error) => {
            // What is there is not to be taken for a disk: its beginning is missing.
            let written = std::fs::read(&target.path).unwrap_or_default();
            assert!(written.iter().take(1 << 20).all(|byte| *byte == 0), "{error}");
            Err(error)
        }
    }
}

fn imported(ova: &[u8]) -> Vec<u8> {
    let (report, disk) = import(ova, OVA).unwrap();
    assert_ne!(report.facts.route, RouteTaken::Ranged);
    assert_eq!(report.source_bytes, ova.len() as u64);
    disk
}

/// A folder with a description and a disk in `subformat`, and what the disk is.
fn machine(subformat: &'static str) -> (tempfile::TempDir, Vec<u8>) {
    let folder = fast_folder();
    let path = |name: &str| folder.path().join(name);
    let content = disk::sparse_content(7, DISK_BYTES, 4);
    std::fs::write(path("disk"), &content).unwrap();
    Subformat::new("vmdk", subformat).write(&path("disk"), &path("vm-disk1.vmdk"));
    std::fs::write(path("vm.ovf"), "<Envelope/>").unwrap();
    (folder, content)
}

fn tar(folder: &Path, flags: &[&str], names: &[&str]) -> Vec<u8> {
    let fixed = ["-c", "-C", folder.to_str().unwrap()];
    let args = flags.iter().chain(&fixed).chain(names).copied();
    tools::filter("tar", args, b"")
}

/// `SHA256(vm.ovf)= …` for each of the files.
fn manifest(folder: &Path, algorithm: &str, names: &[&str]) {
    let lines: String = names
        .iter()
        .map(|name| {
            let program = format!("{}sum", algorithm.to_lowercase());
            let printed = tools::run(&program, [folder.join(name)]);
            let digest = printed.split(' ').next().unwrap();
            format!("{algorithm}({name})= {digest}\n")
        })
        .collect();
    std::fs::write(folder.join("vm.mf"), lines).unwrap();
}

#[test]
fn the_disk_of_an_appliance_is_imported() {
    for subformat in ["subformat=streamOptimized", "subformat=monolithicSparse"] {
        let (folder, content) = machine(subformat);
        for flags in [&["--format=ustar"][..], &["--format=gnu"], &["--format=pax"], &["-z"], &["--zstd"]] {
            let ova = tar(folder.path(), flags, &["vm.ovf", "vm-disk1.vmdk"]);
            assert!(imported(&ova) == content, "{subformat} {flags:?}");
        }
        let ova = tar(folder.path(), &[], &["./vm-disk1.vmdk"]);
        assert!(imported(&ova) == content);
    }
}

#[test]
fn an_appliance_is_described_by_its_disk() {
    let (folder, _) = machine("subformat=streamOptimized");
    let ova = tar(folder.path(), &["-z"], &["vm.ovf", "vm-disk1.vmdk"]);
    let found = inspect_image(&Memory::new(ova), OVA, &ReadOptions::default()).unwrap();
    assert_eq!(found.layers, ["gzip", "ova"]);
    assert_eq!(found.format, Format::Vmdk);
    assert_eq!(found.virtual_size, Some(DISK_BYTES));
    assert_eq!(found.features, ["streamOptimized"]);
}

#[test]
fn manifests_before_and_behind_the_disk_are_verified() {
    let (folder, content) = machine("subformat=streamOptimized");
    for algorithm in ["SHA1", "SHA256", "SHA512"] {
        manifest(folder.path(), algorithm, &["vm.ovf", "vm-disk1.vmdk"]);
        for order in [["vm.ovf", "vm.mf", "vm-disk1.vmdk"], ["vm.ovf", "vm-disk1.vmdk", "vm.mf"]] {
            let ova = tar(folder.path(), &[], &order);
            assert!(imported(&ova) == content, "{algorithm} {order:?}");

            // The manifest is of another disk.
            let text = std::fs::read_to_string(folder.path().join("vm.mf")).unwrap();
            let (rest, digest) = text.rsplit_once("= ").unwrap();
            let first = if digest.starts_with('0') { '1' } else { '0' };
            let wrong = format!("{rest}= {first}{}", &digest[1..]);
            std::fs::write(folder.path().join("vm.mf"), wrong).unwrap();
            let ova = tar(folder.path(), &[], &order);
            assert!(matches!(import(&ova, OVA), Err(Error::Checksum { .. })), "{algorithm} {order:?}");
            std::fs::write(folder.path().join("vm.mf"), text).unwrap();
        }
    }
}

#[test]
fn a_manifest_without_the_disk_promises_nothing() {
    let (folder, content) = machine("subformat=streamOptimized");
    manifest(folder.path(), "SHA256", &["vm.ovf"]);
    let ova = tar(folder.path(), &[], &["vm.ovf", "vm.mf", "vm-disk1.vmdk"]);
    assert!(imported(&ova) == content);
}

#[test]
fn a_digest_that_cannot_be_read_is_refused() {
    let (folder, _) = machine("subformat=streamOptimized");
    std::fs::write(folder.path().join("vm.mf"), "SHA256(vm-disk1.vmdk)= 123\n").unwrap();
    for order in [["vm.mf", "vm-disk1.vmdk"], ["vm-disk1.vmdk", "vm.mf"]] {
        let refused = import(&tar(folder.path(), &[], &order), OVA).unwrap_err();
        assert!(matches!(refusal(&refused), ArchiveErrorKind::Manifest(_)), "{refused}");
        assert!(refused.to_string().contains("vm-disk1.vmdk"), "{refused}");
    }
}

#[test]
fn one_disk_and_no_other() {
    let disk = disk::content(1, 8192);
    let vm = || Tape::default().file("vm.ovf", b"<Envelope/>");
    let two = vm().file("a.img", &disk).file("b.VMDK", &disk).end();
    let refused = import(&two, OVA).unwrap_err();
    assert!(matches!(refusal(&refused), ArchiveErrorKind::SeveralDisks { .. }), "{refused}");
    let said = refused.to_string();
    assert!(said.contains("`a.img`") && said.contains("`b.VMDK`"), "{said}");

    let none = vm().file("vm.mf", b"").file("cd.iso", &disk).end();
    let refused = import(&none, OVA).unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("`vm.ovf`, `vm.mf`, `cd.iso`"), "{said}");

    assert!(imported(&vm().file("a.img", &disk).file("cd.iso", &disk).end()) == disk);
}

#[test]
fn links_holes_and_folders_are_no_disks() {
    let disk = disk::content(1, 8192);
    for typeflag in [b'1', b'2', b'3', b'5', b'6'] {
        let mut fields = Fields::new(typeflag, "disk.vmdk");
        fields.link = b"/etc/passwd".to_vec();
        let ova = Tape::default().entry(&fields, b"").end();
        let refused = import(&ova, OVA).unwrap_err();
        assert!(matches!(refusal(&refused), ArchiveErrorKind::Disk(_)), "{refused}");
        let ova = Tape::default().file("a.img", &disk).entry(&fields, b"").end();
        let second = import(&ova, OVA);
        assert_eq!(second.is_ok(), typeflag == b'5', "a second one of type {typeflag}");
    }
    let folder = fast_folder();
    let path = folder.path().join("disk.img");
    std::fs::write(&path, &disk).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    let ova = tar(folder.path(), &["-S"], &["disk.img"]);
    let refused = import(&ova, OVA).unwrap_err();
    assert!(matches!(refusal(&refused), ArchiveErrorKind::Disk("is stored with holes")), "{refused}");
}

#[test]
fn the_name_of_a_disk_has_to_be_true() {
    let raw = Tape::default().file("disk-flat.vmdk", &disk::content(1, 8192)).end();
    let refused = import(&raw, OVA).unwrap_err().to_string();
    assert!(refused.contains("not in vmdk format"), "{refused}");
    assert!(import(&raw, PayloadKind::Appliance(Some(Format::Raw))).is_ok());
    let text = testkit::images::vmdk::descriptor("monolithicFlat", &["RW 8 FLAT \"/etc/passwd\" 0"]);
    let descriptor = Tape::default().file("disk.vmdk", text.as_bytes()).end();
    let refused = import(&descriptor, OVA).unwrap_err().to_string();
    assert!(refused.contains("/etc/passwd"), "{refused}");
}

#[test]
fn what_is_no_tar_is_no_appliance() {
    let refused = import(&disk::content(1, 8192), OVA).unwrap_err();
    assert_eq!(refusal(&refused), &ArchiveErrorKind::NotAppliance);
}

#[test]
fn every_prefix_fails() {
    let (folder, _) = machine("subformat=streamOptimized");
    let ova = tar(folder.path(), &["-b1"], &["vm.ovf", "vm-disk1.vmdk"]);
    let whole = ova.len() - 1024;
    for cut in (1..40).map(|part| whole * part / 40).chain([whole - 1]) {
        assert!(import(&ova[..cut], OVA).is_err(), "{cut} of {whole}");
    }
}

/// Without the option a tar is a disk like any other.
#[test]
fn an_appliance_that_nobody_asked_for_stays_a_tar() {
    let (folder, _) = machine("subformat=streamOptimized");
    let ova = tar(folder.path(), &[], &["vm.ovf", "vm-disk1.vmdk"]);
    let (report, written) = import(&ova, PayloadKind::default()).unwrap();
    assert_eq!(report.facts.format, Format::Raw);
    assert!(written.starts_with(&ova));
}
