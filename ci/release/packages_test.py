#!/usr/bin/python3
"""Tests ci/release/packages with small programs: the packages are valid, complete and reproducible.

Debian's Python runs it, because yaml is a module of Debian (ci/packages).
"""

import gzip
import hashlib
import os
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
import tomllib
import unittest
import zipfile
from pathlib import Path

import yaml

SCRIPT = Path(__file__).resolve().with_name("packages")
URL = "https://releases.example.org/v1.2.3"
TARGETS = [
    "x86_64-unknown-linux-gnu",
    "aarch64-unknown-linux-gnu",
    "s390x-unknown-linux-gnu",
    "aarch64-apple-darwin",
    "x86_64-apple-darwin",
    "x86_64-pc-windows-gnu",
]


def pack(folder):
    """Runs the script with a stage of its own, and returns the folder of the packages."""
    stage, output = folder / "stage", folder / "packages"
    output.mkdir(parents=True)
    share = stage / "share"
    for name in (
        "man/man1/kubectl-cdi.1",
        "bash-completion/completions/kubectl-cdi",
        "zsh/site-functions/_kubectl-cdi",
        "fish/vendor_completions.d/kubectl-cdi.fish",
    ):
        (share / name).parent.mkdir(parents=True)
        (share / name).write_text('.TH kubectl-cdi 1\n.SH NAME\nkubectl\\-cdi \\- uploads\n')
    for target in TARGETS:
        (stage / target).mkdir()
        name = "kubectl-cdi.exe" if "windows" in target else "kubectl-cdi"
        shutil.copy("/bin/true", stage / target / name)
        (stage / f"{target}.licences").write_text("all licences\n")
    command = [SCRIPT, "--version", "1.2.3", "--url", URL, "--stage", stage, "--output", output, *TARGETS]
    subprocess.run(command, check=True, env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"})
    return output


class PackagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.packages = pack(Path(cls.folder.name) / "first")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def members(self, name):
        """Returns the files of an archive with their modes. Fails if it contains anything else."""
        path = self.packages / name
        if name.endswith(".zip"):
            with zipfile.ZipFile(path) as packed:
                return {info.filename: stat.S_IMODE(info.external_attr >> 16) for info in packed.infolist()}
        with tarfile.open(path, "r:gz") as packed:
            self.assertTrue(all(member.isreg() for member in packed.getmembers()), name)
            return {member.name: member.mode for member in packed.getmembers()}

    def test_dependencies_are_checked_for_every_target_of_a_release(self):
        root = SCRIPT.parents[2]
        line = re.search(r"targets=\((.+ .+)\)", (root / "ci/release/build").read_text())
        checked = tomllib.loads((root / "deny.toml").read_text())["graph"]["targets"]
        self.assertEqual(line.group(1).split(), checked)

    def test_the_same_input_gives_the_same_bytes(self):
        again = pack(Path(self.folder.name) / "second")
        names = sorted(path.name for path in self.packages.iterdir())
        self.assertEqual(names, sorted(path.name for path in again.iterdir()))
        # An archive for each target, three Debian packages, a manifest and a formula.
        self.assertEqual(len(names), 11)
        for name in names:
            self.assertEqual((self.packages / name).read_bytes(), (again / name).read_bytes(), name)

    def test_krew_accepts_the_manifest(self):
        # The rules of krew's pkg/index and pkg/installation.
        plugin = yaml.safe_load((self.packages / "cdi.yaml").read_text())
        self.assertEqual(plugin["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2")
        self.assertEqual(plugin["kind"], "Plugin")
        self.assertRegex(plugin["metadata"]["name"], r"^[\w-]+$")
        spec = plugin["spec"]
        self.assertRegex(spec["version"], r"^v\d+\.\d+\.\d+$")
        self.assertNotIn("\n", spec["shortDescription"])
        self.assertLessEqual(len(spec["shortDescription"]), 50)
        seen = set()
        self.assertEqual(len(spec["platforms"]), len(TARGETS))
        for platform in spec["platforms"]:
            labels = platform["selector"]["matchLabels"]
            self.assertEqual(set(labels), {"os", "arch"})
            self.assertIn(labels["os"], {"linux", "darwin", "windows"})
            self.assertIn(labels["arch"], {"amd64", "arm64", "s390x"})
            self.assertNotIn(tuple(labels.items()), seen)
            seen.add(tuple(labels.items()))
            base, name = platform["uri"].rsplit("/", 1)
            self.assertEqual(base, URL)
            digest = hashlib.sha256((self.packages / name).read_bytes()).hexdigest()
            self.assertEqual(platform["sha256"], digest)
            self.assertRegex(digest, "^[a-f0-9]{64}$")
            files = self.members(name)
            moved = {entry["from"] for entry in platform["files"]}
            self.assertIn("LICENSE", moved)
            self.assertLessEqual(moved, set(files))
            self.assertIn(platform["bin"], moved)
            self.assertEqual(platform["bin"].endswith(".exe"), labels["os"] == "windows")
            self.assertEqual(files[platform["bin"]], 0o755)

    def test_the_formula_names_each_archive_with_its_digest(self):
        path = self.packages / "kubectl-cdi.rb"
        formula = path.read_text()
        pairs = re.findall(r'url "([^"]+)"\n +sha256 "([a-f0-9]{64})"', formula)
        self.assertEqual(len(pairs), 4)
        for url, digest in pairs:
            content = (self.packages / url.removeprefix(URL + "/")).read_bytes()
            self.assertEqual(hashlib.sha256(content).hexdigest(), digest)
        opened = re.findall(r"^ *(?:class|def)\b|\bdo$", formula, re.MULTILINE)
        self.assertEqual(len(opened), len(re.findall(r"^ *end$", formula, re.MULTILINE)))
        if shutil.which("ruby"):
            subprocess.run(["ruby", "-c", path], check=True, stdout=subprocess.DEVNULL)

    def test_binstall_finds_the_archives(self):
        manifest = tomllib.loads((SCRIPT.parent.parent.parent / "kubectl-cdi/Cargo.toml").read_text())
        name = manifest["package"]["name"]
        table = manifest["package"]["metadata"]["binstall"]
        for target in TARGETS:
            # Windows' own compiler is the default there.
            host = target.replace("windows-gnu", "windows-msvc")
            settings = table | table["overrides"].get(host, {})
            fill = {"repo": "R", "name": name, "version": "1.2.3", "target": host, "bin": "kubectl-cdi"}
            fill["binary-ext"] = ".exe" if "windows" in host else ""
            expand = lambda text: re.sub(r"\{ ([a-z-]+) \}", lambda match: fill[match[1]], text)
            archive = expand(settings["pkg-url"]).removeprefix("R/releases/download/v1.2.3/")
            self.assertEqual(settings["pkg-fmt"], "zip" if archive.endswith(".zip") else "tgz")
            self.assertIn(expand(settings["bin-dir"]), self.members(archive))

    def test_debian_accepts_the_packages(self):
        for architecture in ("amd64", "arm64", "s390x"):
            path = self.packages / f"kubectl-cdi_1.2.3_{architecture}.deb"
            field = lambda name: subprocess.run(
                ["dpkg-deb", "--field", path, name], check=True, stdout=subprocess.PIPE, text=True
            ).stdout.strip()
            self.assertEqual((field("Package"), field("Version"), field("Architecture")), ("kubectl-cdi", "1.2.3", architecture))
            listed = subprocess.run(["dpkg-deb", "--contents", path], check=True, stdout=subprocess.PIPE, text=True).stdout
            self.assertRegex(listed, r"-rwxr-xr-x root/root .* \./usr/bin/kubectl-cdi\n")
            self.assertRegex(listed, r"\./usr/bin/kubectl_complete-cdi -> kubectl-cdi\n")
            with tempfile.TemporaryDirectory() as root:
                subprocess.run(["dpkg-deb", "--extract", path, root], check=True)
                licences = Path(root) / "usr/share/doc/kubectl-cdi/LICENCES.gz"
                self.assertEqual(gzip.decompress(licences.read_bytes()), b"all licences\n")


if __name__ == "__main__":
    unittest.main()
