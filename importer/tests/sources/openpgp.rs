//! Lists and images that are signed with GnuPG (`--keyring`, `--signature`): good and bad.

use std::path::Path;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::tools;

use crate::sums::Publisher;

/// Size of a disk whose image, in clusters of 4 KiB, has tables behind its first MiB. They are
/// fetched by range, before the data.
const LARGE_BYTES: u64 = 6 << 20;

/// One test, because GnuPG needs a second for the keys.
#[test]
#[ignore = "server: gpg, nginx"]
fn images_are_imported_only_if_a_key_of_the_keyring_has_signed_them() {
    let publisher = Publisher::start();
    let names = &["disk.img", "other.img"][..];
    publisher.write("sums", &publisher.sums("sha256sum", &[], names));
    let options = ["convert", "-O", "qcow2", "-o", "cluster_size=4k"].map(Into::into);
    let images = ["large.raw", "large.qcow2"].map(|name| publisher.path(name));
    std::fs::write(&images[0], disk::content(9, LARGE_BYTES)).or_fail("the disk");
    tools::run("qemu-img", options.into_iter().chain(images));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sources/openpgp_layouts.sh");
    tools::find("gpg");
    tools::run("bash", [script, publisher.path("")]);
    // One line for one image, as openSUSE stores it.
    for (from, to) in [("alma", "disk.img.sha256"), ("alma.asc", "disk.img.sha256.asc")] {
        std::fs::copy(publisher.path(from), publisher.path(to)).or_fail(to);
    }
    good_signatures(&publisher);
    bad_signatures(&publisher);
    signed_qcow2(&publisher);
}

fn good_signatures(publisher: &Publisher) {
    let disk = publisher.url("disk.img");
    let [trusted, rsa] =
        ["trusted.gpg", "rsa.asc"].map(|name| publisher.path(name).display().to_string());
    for (list, keyring) in [
        ("ubuntu", &trusted),
        ("ubuntu", &rsa),
        ("debian", &trusted),
        ("alma", &trusted),
        ("disk.img.sha256", &trusted),
        ("binary", &trusted),
        ("subkey", &trusted),
        ("old", &trusted),
        // One signature by a trusted key suffices.
        ("two", &rsa),
        ("fedora", &rsa),
        // What counts is the time of the signature.
        ("before-expiry", &trusted),
        ("before-retirement", &trusted),
    ] {
        let place = publisher.url(list);
        publisher.assert_imports(&disk, &["--verify-sums", &place, "--keyring", keyring]);
    }
    // Without a keyring, the list is read as well.
    publisher.assert_imports(&disk, &["--verify-sums", &publisher.url("fedora")]);
    // Files of this machine, and a signature elsewhere.
    let file = publisher.path("ubuntu").display().to_string();
    publisher.assert_imports(&disk, &["--verify-sums", &file, "--keyring", &rsa]);
    let (list, elsewhere) = (publisher.url("unsigned"), publisher.url("ubuntu.gpg"));
    let options = ["--verify-sums", &list, "--keyring", &rsa, "--signature", &elsewhere];
    publisher.assert_imports(&disk, &options);
    for signature in ["image.sig", "image.asc"] {
        let place = publisher.url(signature);
        publisher.assert_imports(&disk, &["--signature", &place, "--keyring", &trusted]);
    }
}

fn bad_signatures(publisher: &Publisher) {
    let disk = publisher.url("disk.img");
    let [trusted, secret, sums] = ["trusted.gpg", "secret.asc", "sums"]
        .map(|name| publisher.path(name).display().to_string());
    for (list, text) in [
        ("unsigned", "is not signed: no signature beside it (.gpg, .sign, .asc); name it with"),
        ("other", "which is not in the keyring; check --keyring"),
        ("fedora-other", "which is not in the keyring"),
        ("changed", "it does not match: what it signs has been changed; fetch it again"),
        ("fedora-changed", "it does not match: what it signs has been changed"),
        ("fedora-before", "it has text before the signed one"),
        ("fedora-after", "it has text after the signature"),
        ("fedora-header", "it has text among its headers"),
        ("sha1", "its hash function is not SHA-256 or SHA-512"),
        ("text", "signatures of type 0x01 are not supported"),
        ("future", "it was made in the future, or this machine's clock is wrong"),
        ("short", "it has expired"),
        ("after-expiry", " had expired when the signature was made; look for a newer"),
        ("revoked", " is revoked; look for a newer"),
        ("after-retirement", " is revoked"),
        ("damaged", "it does not match: "),
        ("cut", "it is truncated"),
    ] {
        let place = publisher.url(list);
        let options = ["--verify-sums", &place, "--keyring", &trusted];
        publisher.assert_refused(&disk, &options, 6, text);
    }
    for (signature, code, text) in [
        ("image-other.sig", 6, "which is not in the keyring"),
        ("image-of-other.sig", 6, "disk.img: the signature does not match: the image is damaged"),
        ("sums", 6, "it has no signature"),
        ("unsigned-empty", 6, "it has no signature"),
        ("none", 3, "404"),
    ] {
        let place = publisher.url(signature);
        let options = ["--signature", &place, "--keyring", &trusted];
        publisher.assert_refused(&disk, &options, code, text);
    }
    let list = publisher.url("ubuntu");
    for (source, options, text) in [
        (disk.as_str(), &["--keyring", &trusted][..], "pass --verify-sums or --signature"),
        (&disk, &["--signature", &list], "--keyring"),
        (&disk, &["--verify-sums", &list, "--keyring", &secret], "it has no public key"),
        (&disk, &["--verify-sums", &list, "--keyring", &sums], "it has no public key"),
        (&disk, &["--verify-sums", &list, "--keyring", "none"], "check --keyring"),
        (&disk, &["--signature", "none", "--keyring", &trusted], "check --signature"),
        ("docker://h/a", &["--signature", &list, "--keyring", &trusted], "is for an image with"),
    ] {
        publisher.assert_refused(source, options, 2, text);
    }
}

/// The tables of an image decide where its data goes, and they are read before the signature is
/// verified.
fn signed_qcow2(publisher: &Publisher) {
    let [keyring, signature, raw] = ["trusted.gpg", "large.sig", "large.raw"]
        .map(|name| publisher.path(name).display().to_string());
    let options = ["--signature", &signature, "--keyring", &keyring];
    let finished =
        publisher.import(&publisher.url("large.qcow2"), &[&options[..], &["-v"]].concat());
    finished.assert_success("a signed qcow2 image");
    assert!(finished.stderr.contains("route=ranged"), "{}", finished.stderr);
    disk::assert_same(&publisher.path("target"), Path::new(&raw), LARGE_BYTES, "qcow2");

    // The same image, except that what comes by range says that a cluster has no data.
    let image = publisher.path("large.qcow2");
    let mut bytes = std::fs::read(&image).or_fail("the image");
    // qcow2.rst: the header has the offset of the L1 table at byte 40, and the tables have entries
    // of 8 bytes, in which bits 9 to 55 are an offset.
    let table = |bytes: &[u8], at: usize| {
        let entry = bytes[at..].first_chunk().or_fail("an entry");
        usize::try_from(u64::from_be_bytes(*entry) & 0x00ff_ffff_ffff_fe00).or_fail("an offset")
    };
    let l1 = table(&bytes, 40);
    let l2 = table(&bytes, l1 + 16);
    assert!(l2 > 1 << 20, "the third L2 table is at {l2:#x}");
    bytes[l2..l2 + 8].fill(0);
    let changed = publisher.path("changed.qcow2");
    std::fs::write(&changed, bytes).or_fail("the changed image");
    let [image, changed] = [image, changed].map(|path| path.display().to_string());
    tools::run("touch", ["--reference", &image, &changed]);
    let url = publisher.url("two/large.qcow2");
    publisher.assert_refused(&url, &options, 3, "of the image differ between two reads");
}
