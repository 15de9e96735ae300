//! OVA files, in which `tar` packs a description, a manifest and a disk.

use std::io::Write;
use std::path::Path;

use datapath::options::WriteOptions;
use datapath::transfer::TransferReport;
use datapath::transfer_image;
use diskimage::Format;
use flate2::Compression;
use flate2::write::GzEncoder;
use inspect::inspect_image;
use stream::Error;
use stream::error::ArchiveErrorKind;
use stream::facts::RouteTaken;
use stream::options::{PayloadKind, ReadOptions};
use testkit::images::Subformat;
use testkit::images::vmdk::{Grain, Tables, Vmdk};
use testkit::{disk, tools};

use crate::archive::tape::{Fields, Tape};
use crate::archive::{gnu_packs, refusal};
use crate::common::{Memory, fast_folder, file};

const DISK_BYTES: u64 = 5 << 20;

const OVA: PayloadKind = PayloadKind::Appliance(None);

/// Imports `ova` to a new file. After a failure, checks that the file does not look like a disk.
fn import(ova: &[u8], content: PayloadKind) -> Result<(TransferReport, Vec<u8>), Error> {
    let folder = fast_folder();
    let target = file(&folder.path().join("disk"));
    let source = Memory::ranged(ova.to_vec());
    let (reading, writing) = (ReadOptions::default(), WriteOptions::default());
    match transfer_image(&source, content, &target, &reading, &writing) {
        Ok(report) => Ok((report, std::fs::read(&target.path).unwrap())),
        Err(error) => {
            // The beginning must be missing, so that nobody takes the file for a disk.
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

/// Returns a folder with a description and a disk in `subformat`, and the content of the disk.
fn machine(subformat: &'static str) -> (tempfile::TempDir, Vec<u8>) {
    let folder = fast_folder();
    let path = |name: &str| folder.path().join(name);
    let content = disk::sparse_content(7, DISK_BYTES, 4);
    std::fs::write(path("disk"), &content).unwrap();
    Subformat::new("vmdk", subformat).write(&path("disk"), &path("vm-disk1.vmdk"));
    std::fs::write(path("vm.ovf"), "<Envelope/>").unwrap();
    (folder, content)
}

/// Writes a manifest with a line such as `SHA256(vm.ovf)= …` for each of the files.
fn manifest(folder: &Path, algorithm: &str, names: &[&str]) {
    let line = |name: &&str| {
        let printed = tools::run(&format!("{}sum", algorithm.to_lowercase()), [folder.join(name)]);
        format!("{algorithm}({name})= {}\n", printed.split(' ').next().unwrap())
    };
    let lines: String = names.iter().map(line).collect();
    std::fs::write(folder.join("vm.mf"), lines).unwrap();
}

#[test]
#[ignore = "tools: qemu-img"]
fn the_disk_of_an_appliance_is_imported() {
    for subformat in ["subformat=streamOptimized", "subformat=monolithicSparse"] {
        let (folder, content) = machine(subformat);
        for flags in
            [&["--format=ustar"][..], &["--format=gnu"], &["--format=pax"], &["-z"], &["--zstd"]]
        {
            let ova = gnu_packs(folder.path(), flags, &["vm.ovf", "vm-disk1.vmdk"]);
            assert!(imported(&ova) == content, "{subformat} {flags:?}");
        }
        let ova = gnu_packs(folder.path(), &[], &["./vm-disk1.vmdk"]);
        assert!(imported(&ova) == content);
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn an_appliance_is_inspected_as_its_disk() {
    let (folder, _) = machine("subformat=streamOptimized");
    let ova = gnu_packs(folder.path(), &["-z"], &["vm.ovf", "vm-disk1.vmdk"]);
    let found = inspect_image(&Memory::new(ova), OVA, &ReadOptions::default()).unwrap();
    assert_eq!(found.layers, ["gzip", "ova"]);
    assert_eq!(found.format, Format::Vmdk);
    assert_eq!(found.virtual_size, Some(DISK_BYTES));
    assert_eq!(found.features, ["streamOptimized"]);
}

#[test]
#[ignore = "tools: qemu-img"]
fn manifests_before_and_after_the_disk_are_verified() {
    let (folder, content) = machine("subformat=streamOptimized");
    for algorithm in ["SHA1", "SHA256", "SHA512"] {
        manifest(folder.path(), algorithm, &["vm.ovf", "vm-disk1.vmdk"]);
        for order in [["vm.ovf", "vm.mf", "vm-disk1.vmdk"], ["vm.ovf", "vm-disk1.vmdk", "vm.mf"]] {
            let ova = gnu_packs(folder.path(), &[], &order);
            assert!(imported(&ova) == content, "{algorithm} {order:?}");

            // The manifest has the digest of another disk.
            let text = std::fs::read_to_string(folder.path().join("vm.mf")).unwrap();
            let (rest, digest) = text.rsplit_once("= ").unwrap();
            let first = if digest.starts_with('0') { '1' } else { '0' };
            let wrong = format!("{rest}= {first}{}", &digest[1..]);
            std::fs::write(folder.path().join("vm.mf"), wrong).unwrap();
            let ova = gnu_packs(folder.path(), &[], &order);
            let refused = import(&ova, OVA);
            assert!(matches!(refused, Err(Error::Checksum { .. })), "{algorithm} {order:?}");
            std::fs::write(folder.path().join("vm.mf"), text).unwrap();
        }
    }
    // A manifest need not list the disk.
    manifest(folder.path(), "SHA256", &["vm.ovf"]);
    let ova = gnu_packs(folder.path(), &[], &["vm.ovf", "vm.mf", "vm-disk1.vmdk"]);
    assert!(imported(&ova) == content);
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_malformed_digest_is_refused() {
    let (folder, _) = machine("subformat=streamOptimized");
    std::fs::write(folder.path().join("vm.mf"), "SHA256(vm-disk1.vmdk)= 123\n").unwrap();
    for order in [["vm.mf", "vm-disk1.vmdk"], ["vm-disk1.vmdk", "vm.mf"]] {
        let refused = import(&gnu_packs(folder.path(), &[], &order), OVA).unwrap_err();
        assert!(refused.to_string().contains("the digest in the manifest"), "{refused}");
        assert!(refused.to_string().contains("vm-disk1.vmdk"), "{refused}");
    }
}

#[test]
fn an_appliance_must_have_exactly_one_disk() {
    let disk = disk::content(1, 8192);
    let vm = || Tape::default().file("vm.ovf", b"<Envelope/>");
    let two = vm().file("a.img", &disk).file("b.VMDK", &disk).end();
    let refused = import(&two, OVA).unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("more than one disk image: `a.img`"), "{said}");
    assert!(said.contains("`b.VMDK`"), "{said}");

    let none = vm().file("vm.mf", b"").file("cd.iso", &disk).end();
    let refused = import(&none, OVA).unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("`vm.ovf`, `vm.mf`, `cd.iso`"), "{said}");

    assert!(imported(&vm().file("a.img", &disk).file("cd.iso", &disk).end()) == disk);
}

#[test]
fn links_and_folders_are_not_accepted_as_disks() {
    let disk = disk::content(1, 8192);
    for typeflag in [b'1', b'2', b'3', b'5', b'6'] {
        let mut fields = Fields::new(typeflag, "disk.vmdk");
        fields.link = b"/etc/passwd".to_vec();
        let ova = Tape::default().entry(&fields, b"").end();
        let refused = import(&ova, OVA).unwrap_err();
        assert!(refused.to_string().contains("it must be a regular file"), "{refused}");
        let ova = Tape::default().file("a.img", &disk).entry(&fields, b"").end();
        let second = import(&ova, OVA);
        assert_eq!(second.is_ok(), typeflag == b'5', "a second `disk.vmdk` of type {typeflag}");
    }
}

/// Google stores its images as a sparse `disk.raw`.
#[test]
fn a_sparse_disk_is_filled_with_zeros() {
    let mut disk = disk::content(1, 8192);
    disk.resize(1 << 20, 0);
    let folder = fast_folder();
    disk::write_sparse(&folder.path().join("disk.raw"), &disk);
    let ova = gnu_packs(folder.path(), &["-S", "--format=oldgnu"], &["disk.raw"]);
    assert!(ova.len() < disk.len());
    assert!(imported(&ova) == disk);
}

#[test]
fn a_disk_may_be_compressed_if_its_name_states_a_format() {
    let vmdk = Vmdk::small(Tables::First, false, vec![Grain::Data(1), Grain::Hole]);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&vmdk.build()).unwrap();
    let packed = packed.finish().unwrap();
    assert!(imported(&Tape::default().file("disk1.vmdk", &packed).end()) == vmdk.disk());
    // The bytes of a raw disk belong to its guest.
    let mut raw = packed;
    raw.resize(raw.len().next_multiple_of(512), 0);
    assert!(imported(&Tape::default().file("disk.raw", &raw).end()) == raw);
}

#[test]
fn a_disk_must_have_the_format_of_its_extension() {
    let refused = import(&disk::content(1, 8192), OVA).unwrap_err();
    assert_eq!(refusal(&refused), &ArchiveErrorKind::NotAppliance, "it is not a tar");
    let raw = Tape::default().file("disk-flat.vmdk", &disk::content(1, 8192)).end();
    let refused = import(&raw, OVA).unwrap_err().to_string();
    assert!(refused.contains("not in vmdk format"), "{refused}");
    assert!(import(&raw, PayloadKind::Appliance(Some(Format::Raw))).is_ok());
    let text =
        testkit::images::vmdk::descriptor("monolithicFlat", &["RW 8 FLAT \"/etc/passwd\" 0"]);
    let descriptor = Tape::default().file("disk.vmdk", text.as_bytes()).end();
    let refused = import(&descriptor, OVA).unwrap_err().to_string();
    assert!(refused.contains("/etc/passwd"), "{refused}");
}

#[test]
#[ignore = "tools: qemu-img"]
fn every_prefix_of_an_appliance_is_refused() {
    let (folder, _) = machine("subformat=streamOptimized");
    let ova = gnu_packs(folder.path(), &["-b1"], &["vm.ovf", "vm-disk1.vmdk"]);
    let whole = ova.len() - 1024;
    for cut in (1..40).map(|part| whole * part / 40).chain([whole - 1]) {
        assert!(import(&ova[..cut], OVA).is_err(), "{cut} of {whole}");
    }
}

/// Without the option, a tar is a raw disk like any other file.
#[test]
#[ignore = "tools: qemu-img"]
fn an_appliance_is_imported_as_a_tar_unless_requested() {
    let (folder, _) = machine("subformat=streamOptimized");
    let ova = gnu_packs(folder.path(), &[], &["vm.ovf", "vm-disk1.vmdk"]);
    let (report, written) = import(&ova, PayloadKind::default()).unwrap();
    assert_eq!(report.facts.format, Format::Raw);
    assert!(written.starts_with(&ova));
}
