#!/usr/bin/env python3
"""ci/release/evidence.py: adds to a release what others need to verify it, before its checksums are made.

  cdi-workers-VERSION.openvex.json      exceptions of deny.toml, for vulnerability scanners (OpenVEX 0.2.0)
  cdi-workers-VERSION.provenance.json   an in-toto statement about all files and images: SLSA provenance v1
  cdi-IMAGE.referrers.oci.tar           both and the image's bills of materials, as OCI referrers of the image

ci/release/contents checks them. The same release, commit and SOURCE_DATE_EPOCH give the same bytes.
"""

import argparse
import functools
import hashlib
import io
import json
import os
import subprocess
import tarfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.minisig"
VENDOR = "cdi-workers maintainers"

CYCLONEDX = "application/vnd.cyclonedx+json"
OPENVEX = "application/vnd.openvex+json"
IN_TOTO = "application/vnd.in-toto+json"
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
# The configuration of an artifact that has none (OCI image specification, "Guidance for an empty descriptor").
EMPTY = "application/vnd.oci.empty.v1+json"


def compact(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def printed(value):
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def output_of(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


class Layout:
    """An OCI image layout in a tar archive."""

    def __init__(self, path):
        self.path = path

    @functools.cached_property
    def top(self):
        """The only entry of the index: the image of all architectures.

        skopeo and podman accept one entry only, which is why referrers have archives of their own.
        """
        (top,) = json.loads(self.read("index.json"))["manifests"]
        return top

    def read(self, name):
        with tarfile.open(self.path) as archive:
            for member in archive:
                if member.name.removeprefix("./") == name:
                    return archive.extractfile(member).read()
        raise ValueError(f"{name} is missing")

    def blob(self, descriptor):
        content = self.read("blobs/" + descriptor["digest"].replace(":", "/"))
        if "sha256:" + sha256(content) != descriptor["digest"]:
            raise ValueError(f"{descriptor['digest']} has another digest")
        return content

    def manifests(self):
        """Yields the entries of the image's index with their manifests."""
        for entry in json.loads(self.blob(self.top))["manifests"]:
            yield entry, json.loads(self.blob(entry))


def write_layout(path, tag, entries):
    """Writes a layout with one index. Its entries are pairs: a manifest without config and layers as
    digests, but with their content as (media type, bytes, annotations); and more fields of the entry."""
    files = {"oci-layout": compact({"imageLayoutVersion": "1.0.0"})}

    def store(media_type, content, **more):
        files["blobs/sha256/" + sha256(content)] = content
        return {"mediaType": media_type, "digest": "sha256:" + sha256(content), "size": len(content), **more}

    listed = []
    for manifest, fields in entries:
        config, *layers = [store(kind, content, **more) for kind, content, more in [manifest["config"], *manifest["layers"]]]
        whole = {"schemaVersion": 2, "mediaType": MANIFEST, **manifest, "config": config, "layers": layers}
        listed.append(store(MANIFEST, compact(whole), **fields))
    index = store(INDEX, compact({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed}))
    index["annotations"] = {"org.opencontainers.image.ref.name": tag}
    files["index.json"] = compact({"schemaVersion": 2, "mediaType": INDEX, "manifests": [index]})
    path.write_bytes(tar_of(sorted(files.items())))
    return index


def tar_of(files):
    """Returns a tar of files: name, content and perhaps mode."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content, *mode in files:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(content), EPOCH, *(mode or [0o644])
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


class Release:
    """A folder that ci/release/build fills."""

    def __init__(self, folder, version):
        self.folder, self.version = folder, version
        self.vex = f"cdi-workers-{version}.openvex.json"
        self.provenance = f"cdi-workers-{version}.provenance.json"
        archives = [path.name.removesuffix(".oci.tar") for path in sorted(folder.glob("cdi-*.oci.tar"))]
        self.images = {name: Layout(folder / f"{name}.oci.tar") for name in archives if not name.endswith(".referrers")}

    def read(self, name):
        return (self.folder / name).read_bytes()

    def document(self, name):
        return json.loads(self.read(name))

    def sums(self):
        """Returns the digest of each file that SHA256SUMS lists."""
        names = sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())
        return {name: sha256(self.read(name)) for name in names if name not in (SUMS, SIGNATURE)}

    def subjects(self):
        """Returns what the provenance covers: images, and files except itself and the archives that contain it."""
        files = {name: digest for name, digest in self.sums().items() if name != self.provenance and ".referrers." not in name}
        return files | {name: layout.top["digest"].removeprefix("sha256:") for name, layout in self.images.items()}

    def referrers(self, image):
        """Yields the documents that belong to an image: (artifact type, file)."""
        for architecture in ("amd64", "arm64", "s390x"):
            name = f"{image}-{architecture}.cdx.json"
            if (self.folder / name).exists():
                yield CYCLONEDX, name
        yield OPENVEX, self.vex
        yield IN_TOTO, self.provenance


def openvex(release, source):
    """Returns the statements about the exceptions of deny.toml (OpenVEX 0.2.0)."""
    ignored = tomllib.loads((ROOT / "deny.toml").read_text())["advisories"]["ignore"]
    products = [{"@id": f"pkg:generic/cdi-workers@{release.version}"}]
    for name, layout in release.images.items():
        products.append({"@id": f"pkg:oci/{name}@{layout.top['digest'].replace(':', '%3A')}"})
    return {
        "@context": "https://openvex.dev/ns/v0.2.0",
        "@id": f"{source}#openvex-{release.version}",
        "author": VENDOR,
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH)),
        "version": 1,
        "statements": [
            {
                "vulnerability": {"name": entry["id"]},
                "products": products,
                "status": "not_affected",
                "impact_statement": entry["reason"],
            }
            for entry in ignored
        ],
    }


def materials(release, source, packages):
    """Returns what the release was built from, as ResourceDescriptors."""
    rustc = dict(line.split(": ", 1) for line in output_of("rustc", "--version", "--verbose").splitlines() if ": " in line)
    debian = set()
    for path in release.folder.glob("*.cdx.json"):
        components = json.loads(path.read_text())["components"]
        debian.update(part["purl"] for part in components if part["purl"].startswith("pkg:deb/"))
    for package in packages:
        version, architecture = output_of("dpkg-query", "--show", "--showformat", "${Version} ${Architecture}", package).split()
        debian.add(f"pkg:deb/debian/{package}@{version}?arch={architecture}")
    return [
        {"uri": f"git+{source}", "digest": {"gitCommit": output_of("git", "rev-parse", "HEAD")}},
        {"name": "Cargo.lock", "digest": {"sha256": sha256((ROOT / "Cargo.lock").read_bytes())}},
        {"uri": f"pkg:generic/rustc@{rustc['release']}", "digest": {"gitCommit": rustc["commit-hash"]}},
        *({"uri": purl} for purl in sorted(debian)),
    ]


def provenance(release, options):
    """Returns the SLSA provenance (slsa.dev/spec/v1.0/provenance)."""
    parameters = {"version": release.version, "targets": options.target, "url": options.url, "source": options.source}
    if output_of("git", "status", "--porcelain"):
        parameters["uncommitted"] = True
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(release.subjects().items())],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{options.source}#ci/release/build",
                "externalParameters": parameters,
                "resolvedDependencies": materials(release, options.source, options.debian),
            },
            "runDetails": {"builder": {"id": options.builder or f"{options.source}#unattested-builder"}},
        },
    }


def write(release, options):
    (release.folder / release.vex).write_bytes(printed(openvex(release, options.source)))
    (release.folder / release.provenance).write_bytes(printed(provenance(release, options)))
    for image, layout in release.images.items():
        subject = {key: layout.top[key] for key in ("mediaType", "digest", "size")}
        entries = []
        for kind, name in release.referrers(image):
            annotations = {"org.opencontainers.image.title": name}
            layers = [(kind, release.read(name), {"annotations": annotations})]
            manifest = {"artifactType": kind, "config": (EMPTY, b"{}", {}), "layers": layers, "subject": subject}
            entries.append((manifest, {"artifactType": kind, "annotations": annotations}))
        # This index under this name is how registries without a list of referrers find them (OCI
        # distribution specification, "Referrers tag schema").
        write_layout(release.folder / f"{image}.referrers.oci.tar", subject["digest"].replace(":", "-"), entries)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", required=True, help="of the release")
    parser.add_argument("--url", required=True, help="where the release will be")
    parser.add_argument("--source", required=True, help="where the sources are")
    parser.add_argument("--builder", help="who builds: a URI")
    parser.add_argument("--target", action="append", default=[], help="that the release was built for")
    parser.add_argument("--debian", action="append", default=[], help="package that the build used")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    write(Release(options.folder, options.version), options)


if __name__ == "__main__":
    main()
