#!/usr/bin/python3
"""Tests ci/release/contents and evidence.py with a small release: it passes, and each item that is removed or altered is named."""

import gzip
import importlib.machinery
import importlib.util
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
import evidence

loader = importlib.machinery.SourceFileLoader("contents", str(HERE / "contents"))
contents = importlib.util.module_from_spec(importlib.util.spec_from_loader("contents", loader))
loader.exec_module(contents)

VERSION, TRIPLE, WINDOWS = "1.2.3", "x86_64-unknown-linux-gnu", "x86_64-pc-windows-gnu"
SOURCE = "https://git.example.org/cdi-workers"
ENVIRONMENT = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
# Contains a source file's path of the second crate, as messages of panics do.
CRATES = [("kubectl-cdi", VERSION), ("paste", "1.0.15")]
CODE = b"/cargo/registry/src/index.crates.io-1/paste-1.0.15/src/lib.rs"
LICENCES = {"licenses/LICENSE": b"Apache", "licenses/LICENCES.gz": b"all"}
COMMIT = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HERE, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
LABELS = {label: "text" for label in contents.LABELS}
LABELS |= {"name": "cdi-cloner", "version": VERSION}
LABELS |= {f"org.opencontainers.image.{name}": LABELS[label] for name, label in [("title", "name"), ("version", "version")]}
LABELS |= {f"org.opencontainers.image.{name}": value for name, value in [("revision", COMMIT), ("source", SOURCE), ("licenses", "Apache-2.0")]}


def linux_program(folder, crates):
    """Returns a program with a section of crates."""
    program, section = folder / "program", folder / "section"
    shutil.copy("/bin/true", program)
    (folder / "code").write_bytes(CODE)
    command = ["objcopy", "--add-section", f".code={folder / 'code'}"]
    if crates:
        section.write_bytes(audit_data(crates))
        command += ["--add-section", f".dep-v0={section}"]
    subprocess.run([*command, program], check=True)
    return program.read_bytes()


def windows_program(crates):
    """Returns the smallest program for Windows of which the sections can be read."""
    data = audit_data(crates)
    head = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64)
    coff = b"PE\0\0" + struct.pack("<HHIIIHH", 0x8664, 1, 0, 0, 0, 0, 0)
    return head + coff + struct.pack("<8sIIII16x", b".dep-v0", len(data), 4096, len(data), 128) + data


def audit_data(crates):
    packages = [{"name": name, "version": version, "source": "crates.io"} for name, version in crates]
    # A crate that only compiles is not in the program.
    packages.append({"name": "cc", "version": "1.0.0", "source": "crates.io", "kind": "build"})
    return zlib.compress(json.dumps({"packages": packages}).encode())


def tar(files):
    return gzip.compress(evidence.tar_of(files.items()), mtime=0)


def write_deb(path, program):
    with tempfile.TemporaryDirectory() as root:
        for name, content in [("DEBIAN/control", b"Package: kubectl-cdi\nVersion: 1\nArchitecture: amd64\nMaintainer: M <m@x.invalid>\nDescription: d\n"), ("usr/bin/kubectl-cdi", program)]:
            (Path(root) / name).parent.mkdir(parents=True)
            (Path(root) / name).write_bytes(content)
        subprocess.run(["dpkg-deb", "--build", root, path], check=True, stdout=subprocess.DEVNULL)


def write_image(folder, labels, files):
    config = json.dumps({"config": {"Labels": labels}}).encode()
    manifest = {
        "config": ("application/vnd.oci.image.config.v1+json", config, {}),
        "layers": [("application/vnd.oci.image.layer.v1.tar+gzip", tar(files), {})],
    }
    platform = {"platform": {"architecture": "amd64", "os": "linux"}}
    evidence.write_layout(folder / "cdi-cloner.oci.tar", f"cdi-cloner:{VERSION}", [(manifest, platform)])


def write_release(folder, labels=LABELS, licences=LICENCES, crates=CRATES, windows=CRATES, bill=CRATES):
    folder.mkdir()
    with tempfile.TemporaryDirectory() as stage:
        program = linux_program(Path(stage), crates)
    parts = [{"name": name, "version": version, "purl": f"pkg:cargo/{name}@{version}"} for name, version in bill]
    parts.append({"name": "glibc", "version": "1", "purl": "pkg:deb/debian/glibc@1?arch=source"})
    for name in ("cdi-cloner-amd64", f"cdi-workers-{VERSION}-{TRIPLE}", f"kubectl-cdi-{VERSION}-{TRIPLE}", f"kubectl-cdi-{VERSION}-{WINDOWS}"):
        (folder / f"{name}.cdx.json").write_text(json.dumps({"bomFormat": "CycloneDX", "components": parts}))
    write_image(folder, labels, licences | {"usr/bin/cdi-cloner": program, "usr/bin/busybox": b"no crates"})
    stem = f"cdi-workers-{VERSION}-{TRIPLE}"
    (folder / f"{stem}.tar.gz").write_bytes(tar({f"{stem}/bin/cdi-importer": program}))
    (folder / f"kubectl-cdi-{VERSION}-{TRIPLE}.tar.gz").write_bytes(tar({"kubectl-cdi": program, "LICENSE": b"Apache"}))
    with zipfile.ZipFile(folder / f"kubectl-cdi-{VERSION}-{WINDOWS}.zip", "w") as archive:
        archive.writestr("kubectl-cdi.exe", windows_program(windows))
    write_deb(folder / f"kubectl-cdi_{VERSION}_amd64.deb", program)
    (folder / "deploy").mkdir()
    (folder / "deploy/swap-in.yaml").write_text("digest\n")
    add_evidence(folder)


def add_evidence(folder):
    command = [HERE / "evidence.py", "--version", VERSION, "--url", "https://example.org/v1", "--source", SOURCE, "--debian", "dpkg", folder]
    subprocess.run(command, check=True, env=ENVIRONMENT)
    write_sums(folder)


def write_sums(folder):
    sums = contents.Release(folder, VERSION).sums()
    (folder / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))


def sign(folder, key):
    command = ["minisign", "-S", "-s", key, "-m", folder / "SHA256SUMS", "-t", "test"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def edit(path, change):
    """Changes a JSON document."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


class SupplyChainTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.work = Path(cls.folder.name)
        for name in ("ours", "theirs"):
            command = ["minisign", "-G", "-W", "-p", cls.work / f"{name}.pub", "-s", cls.work / f"{name}.key"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        cls.good = cls.work / "good"
        write_release(cls.good)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def check(self, folder, *, key="ours", signer="ours"):
        """Returns what the check complains about."""
        if signer:
            sign(folder, self.work / f"{signer}.key")
        command = [HERE / "contents", "--version", VERSION, *(["--key", self.work / f"{key}.pub"] if key else []), folder]
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        complaints = [line.removeprefix(f"{folder}: ") for line in ended.stderr.splitlines()]
        failed = any(line != complaint for line, complaint in zip(ended.stderr.splitlines(), complaints))
        self.assertEqual(ended.returncode, int(failed), ended.stderr)
        return complaints

    def copy(self):
        folder = self.work / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.good, folder)
        return folder

    def changed(self, change):
        """Returns what the check complains about after this change, with new checksums."""
        folder = self.copy()
        change(folder)
        write_sums(folder)
        return self.check(folder)

    def altered(self, **parts):
        folder = self.work / "altered"
        shutil.rmtree(folder, ignore_errors=True)
        write_release(folder, **parts)
        return self.check(folder)

    def test_a_good_release_passes_and_is_reproducible(self):
        self.assertEqual(self.check(self.copy()), [])
        again = self.copy()
        add_evidence(again)
        for name in contents.Release(self.good, VERSION).sums():
            self.assertEqual((self.good / name).read_bytes(), (again / name).read_bytes(), name)

    def test_skopeo_copies_image_and_referrers(self):
        for name in ("cdi-cloner", "cdi-cloner.referrers"):
            target = f"oci:{self.work / name}:copied"
            subprocess.run(["skopeo", "copy", "--quiet", "--all", f"oci-archive:{self.good / name}.oci.tar", target], check=True)
        layout = self.work / "cdi-cloner.referrers"
        subject = contents.Release(self.good, VERSION).images["cdi-cloner"].top["digest"]
        manifests = [json.loads(path.read_bytes()) for path in (layout / "blobs/sha256").iterdir() if path.read_bytes().startswith(b'{"artifactType"')]
        self.assertEqual({manifest["subject"]["digest"] for manifest in manifests}, {subject})
        kinds = [evidence.CYCLONEDX, evidence.IN_TOTO, evidence.OPENVEX]
        self.assertEqual(sorted(manifest["artifactType"] for manifest in manifests), kinds)

    def test_an_unsigned_release_passes_only_without_a_key(self):
        folder = self.copy()
        (complaint,) = self.check(folder, key=None, signer=None)
        self.assertIn("this release is unsigned", complaint)
        self.assertEqual(self.check(folder, signer=None), ["SHA256SUMS.minisig is missing: this release is unsigned"])
        (complaint,) = self.check(folder, key=None)
        self.assertIn("NOT CHECKED", complaint)
        complaints = self.check(folder, signer="theirs")
        self.assertIn("SHA256SUMS.minisig is not a signature of SHA256SUMS", complaints[-1])

    def test_changes_after_signing_are_noticed(self):
        bill = "cdi-cloner-amd64.cdx.json"
        for change, complaint in [
            (lambda folder: (folder / bill).unlink(), f"{bill} is missing: SHA256SUMS lists it"),
            (lambda folder: (folder / bill).write_text((folder / bill).read_text() + " "), f"{bill} has another digest than in SHA256SUMS"),
            (lambda folder: (folder / "more").write_text(""), "more is not listed in SHA256SUMS"),
            (lambda folder: (folder / "SHA256SUMS").unlink(), "SHA256SUMS is missing"),
        ]:
            folder = self.copy()
            sign(folder, self.work / "ours.key")
            change(folder)
            self.assertIn(complaint, self.check(folder, signer=None))
        folder = self.copy()
        sign(folder, self.work / "ours.key")
        (folder / "more").write_text("")
        write_sums(folder)
        complaints = self.check(folder, signer=None)
        self.assertTrue(any("is not a signature" in complaint for complaint in complaints), complaints)

    def test_parts_of_images_are_required(self):
        for licence in LICENCES:
            rest = {name: text for name, text in LICENCES.items() if name != licence}
            self.assertEqual(self.altered(licences=rest), [f"cdi-cloner (amd64): /{licence} is missing or empty"])
        missing = [f"cdi-cloner (amd64): the label {label} is missing" for label in LABELS]
        self.assertEqual(sorted(self.altered(labels={})), sorted(missing))
        complaints = self.altered(labels=LABELS | {"version": "9.9", "org.opencontainers.image.revision": "0" * 40})
        wrong = [
            f"the label org.opencontainers.image.revision is {'0' * 40}, not {COMMIT}",
            f"the label version is 9.9, not {VERSION}",
        ]
        self.assertEqual(complaints, [f"cdi-cloner (amd64): {sentence}" for sentence in wrong])

    def test_programs_and_bills_must_agree(self):
        for parts, complaint, places in [
            ({"crates": []}, "does not name its crates (section .dep-v0)", 4),
            ({"windows": []}, "kubectl-cdi.exe does not name its crates (section .dep-v0)", 1),
            ({"bill": CRATES[:1]}, "names the crate paste 1.0.15, which is not in ", 5),
            ({"bill": [*CRATES, ("ring", "0.17.14")]}, "lists the crate ring 0.17.14, which no program of ", 5),
            ({"crates": CRATES[:1]}, "contains code of the crate paste 1.0.15, which it does not name", 4),
        ]:
            complaints = self.altered(**parts)
            self.assertEqual(len([text for text in complaints if complaint in text]), places, complaints)

    def test_documents_are_required(self):
        release = contents.Release(self.good, VERSION)
        provenance, vex, referrers = release.provenance, release.vex, "cdi-cloner.referrers.oci.tar"
        for name in (provenance, vex, referrers):
            self.assertIn(f"{name} is missing", self.changed(lambda folder: (folder / name).unlink()))
        predicate = lambda statement: statement["predicate"]
        dependencies = lambda statement: predicate(statement)["buildDefinition"]["resolvedDependencies"]
        for name, change, complaint in [
            (provenance, lambda it: it["subject"].pop(0), f"cdi-cloner is not listed in {provenance}"),
            (provenance, lambda it: it["subject"][1]["digest"].update(sha256="0"), f"cdi-cloner-amd64.cdx.json has another digest than in {provenance}"),
            (provenance, lambda it: it["subject"].append({"name": "x", "digest": {"sha256": "0"}}), f"x is missing: {provenance} lists it"),
            (provenance, lambda it: predicate(it)["buildDefinition"]["externalParameters"].update(version="9"), f"{provenance} is about version 9, not {VERSION}"),
            (provenance, lambda it: predicate(it).pop("runDetails"), f"{provenance} does not mention the builder"),
            (provenance, lambda it: dependencies(it).pop(0), f"{provenance} does not mention the commit"),
            (provenance, lambda it: dependencies(it).pop(1), f"{provenance} does not mention Cargo.lock among the dependencies"),
            (vex, lambda it: it["statements"].clear(), f"{vex} does not state the exceptions of deny.toml"),
            (vex, lambda it: it["statements"][0].update(status="fixed"), f"{vex} does not state the exceptions of deny.toml"),
        ]:
            complaints = self.changed(lambda folder: edit(folder / name, change))
            self.assertIn(complaint, complaints)
            self.assertIn(f"{referrers} contains another {name}", complaints)

    def test_damaged_files_are_named(self):
        for name in ("cdi-cloner.oci.tar", "cdi-cloner.referrers.oci.tar", f"kubectl-cdi_{VERSION}_amd64.deb", f"cdi-workers-{VERSION}.provenance.json"):
            complaints = self.changed(lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:700]))
            self.assertTrue(any(f"{name} cannot be read" in complaint for complaint in complaints), complaints)

    def test_referrers_must_belong_to_the_image(self):
        complaints = "\n".join(self.changed(lambda folder: write_image(folder, LABELS | {"summary": "another"}, LICENCES)))
        self.assertIn("cdi-cloner-amd64.cdx.json refers to another image", complaints)
        self.assertIn("not the digest of cdi-cloner", complaints)
        # Without the bill.
        folder = self.copy()
        bill = (folder / "cdi-cloner-amd64.cdx.json").read_bytes()
        (folder / "cdi-cloner-amd64.cdx.json").unlink()
        add_evidence(folder)
        (folder / "cdi-cloner-amd64.cdx.json").write_bytes(bill)
        write_sums(folder)
        self.assertIn("cdi-cloner.referrers.oci.tar does not contain cdi-cloner-amd64.cdx.json", self.check(folder))


if __name__ == "__main__":
    unittest.main()
