"""Pushes images with signatures as cosign 2 and 3 store them, good and bad, to a registry.

cosign_layouts.py REGISTRY FOLDER: makes keys in FOLDER (NAME.pem, NAME.pub) and pushes each case
below to the repository `disks`, with its name as the tag. Prints the digests of the images as JSON.
Nothing here shares code with the importer: openssl signs, and the layouts follow cosign's own
documents.
"""

import base64
import functools
import hashlib
import http.client
import io
import json
import pathlib
import subprocess
import sys
import tarfile

REGISTRY, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
SIMPLE = "application/vnd.dev.cosign.simplesigning.v1+json"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
SIGN = "https://sigstore.dev/cosign/sign/v1"
IN_TOTO = "application/vnd.in-toto+json"
EMPTY = "application/vnd.oci.empty.v1+json"
P256 = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]

connection = http.client.HTTPConnection(REGISTRY)


def openssl(*words, data=None):
    return subprocess.run(["openssl", *words], input=data, stdout=subprocess.PIPE, check=True).stdout


def make_key(name, *options):
    secret, public = FOLDER / f"{name}.pem", FOLDER / f"{name}.pub"
    openssl("genpkey", "-quiet", *options, "-out", secret)
    openssl("pkey", "-in", secret, "-pubout", "-out", public)


def sign(name, data):
    key = FOLDER / f"{name}.pem"
    if name != "ed25519":
        return openssl("dgst", "-sha256", "-sign", key, data=data)
    # This command reads the message of Ed25519 from a file only.
    message = FOLDER / "message"
    message.write_bytes(data)
    return openssl("pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", message)


def request(method, path, body=b"", headers=None):
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status not in (201, 202):
        sys.exit(f"{method} {path}: {answer.status} {text}")
    return answer


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


@functools.cache
def upload(data):
    digest = digest_of(data)
    place = request("POST", "/v2/disks/blobs/uploads/").getheader("Location")
    place = place[place.index("/v2/"):]
    request("PUT", f"{place}&digest={digest}", data, {"Content-Type": "application/octet-stream"})
    return digest


def put_blob(data, kind, **fields):
    digest = upload(data)
    return {"mediaType": kind, "digest": digest, "size": len(data), **fields}


def put_manifest(document, tag=None):
    data = json.dumps(document).encode()
    path = f"/v2/disks/manifests/{tag or digest_of(data)}"
    request("PUT", path, data, {"Content-Type": document["mediaType"]})
    return {"mediaType": document["mediaType"], "digest": digest_of(data), "size": len(data)}


def manifest(config, layers, **fields):
    return {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers, **fields}


def put_image(case):
    """Returns the digests of an index and of its one manifest."""
    disk, tar = bytes(range(256)) * 256, io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        member = tarfile.TarInfo("disk/disk.img")
        member.size = len(disk)
        archive.addfile(member, io.BytesIO(disk))
        # Another layer, for the tests that remove it.
        if case in ("unsigned", "simple-rsa"):
            archive.addfile(tarfile.TarInfo(f"etc/{case}"))
    layer = put_blob(tar.getvalue(), "application/vnd.oci.image.layer.v1.tar")
    config = json.dumps({"architecture": "amd64", "os": "linux"}).encode()
    config = put_blob(config, "application/vnd.oci.image.config.v1+json")
    # Another digest for each case.
    image = put_manifest(manifest(config, [layer], annotations={"case": case}))
    image["platform"] = {"architecture": "amd64", "os": "linux"}
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [image]}
    return put_manifest(index, case)["digest"], image["digest"], layer["digest"]


def payload(digest, kind="cosign container image signature"):
    image = {"docker-manifest-digest": digest}
    identity = {"docker-reference": "registry.example/disk"}
    critical = {"identity": identity, "image": image, "type": kind}
    return json.dumps({"critical": critical, "optional": None}).encode()


def simple(digest, *signed, **more):
    """Tags signatures of `digest`: pairs of a key and a payload, or of a signature and a payload."""
    layers = []
    for key, data in signed:
        text = base64.b64encode(sign(key, data)).decode() if isinstance(key, str) else key[0]
        annotations = {"dev.cosignproject.cosign/signature": text, **more}
        layers.append(put_blob(data, SIMPLE, annotations=annotations))
    config = put_blob(b'{"os":""}', "application/vnd.oci.image.config.v1+json")
    tag = digest.replace(":", "-") + ".sig"
    put_manifest(manifest(config, layers), tag)


def statement(digest, predicate=SIGN):
    subject = [{"digest": {"sha256": digest.removeprefix("sha256:")}}]
    kind = "https://in-toto.io/Statement/v1"
    return json.dumps({"_type": kind, "subject": subject, "predicateType": predicate, "predicate": {}}).encode()


def bundle(key, data, kind=IN_TOTO, signatures=1, media_type=BUNDLE, encode=True):
    head = f"DSSEv1 {len(kind)} {kind} {len(data)} ".encode() if encode else b""
    signature = {"sig": base64.b64encode(sign(key, head + data)).decode()}
    envelope = {"payload": base64.b64encode(data).decode(), "payloadType": kind, "signatures": [signature] * signatures}
    material = {"publicKey": {"hint": "x"}, "tlogEntries": []}
    return json.dumps({"mediaType": media_type, "verificationMaterial": material, "dsseEnvelope": envelope}).encode()


def refer(digest, *documents, predicate=None, tag=None, subject=None, listed=BUNDLE):
    """Stores bundles, and the index that clients maintain where registries do not list referrers."""
    entries = []
    for document in documents:
        config = put_blob(b"{}", EMPTY)
        layer = put_blob(document, BUNDLE)
        annotations = {"dev.sigstore.bundle.content": "dsse-envelope"}
        if predicate:
            annotations["dev.sigstore.bundle.predicateType"] = predicate
        about = {"mediaType": INDEX, "digest": subject or digest, "size": 1}
        fields = {"artifactType": BUNDLE, "subject": about, "annotations": annotations}
        entry = put_manifest(manifest(config, [layer], **fields))
        entries.append({**entry, "artifactType": listed, "annotations": annotations})
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}
    if tag is None:
        put_manifest(index, digest.replace(":", "-"))
    return index


NOWHERE = "sha256:" + "0" * 64
VULNERABLE = "https://cosign.sigstore.dev/attestation/vuln/v1"
FLIPPED = [base64.b64encode(b"\x30\x06\x02\x01\x01\x02\x01\x01").decode()]

CASES = {
    "simple-ecdsa": lambda i, m: simple(i, ("ecdsa", payload(i))),
    "simple-rsa": lambda i, m: simple(i, ("rsa", payload(i))),
    "simple-ed25519": lambda i, m: simple(i, ("ed25519", payload(i))),
    "simple-manifest": lambda i, m: simple(m, ("ecdsa", payload(m))),
    "simple-second": lambda i, m: simple(i, ("other", payload(i)), ("ecdsa", payload(i))),
    "simple-other-key": lambda i, m: simple(i, ("other", payload(i)), ("rsa", payload(i))),
    "simple-other-image": lambda i, m: simple(i, ("ecdsa", payload(NOWHERE))),
    "simple-manifest-for-index": lambda i, m: simple(i, ("ecdsa", payload(m))),
    "simple-other-type": lambda i, m: simple(i, ("ecdsa", payload(i, "atomic container signature"))),
    "simple-not-base64": lambda i, m: simple(i, (["%%%"], payload(i))),
    "simple-flipped": lambda i, m: simple(i, (FLIPPED, payload(i))),
    "simple-not-json": lambda i, m: simple(i, ("ecdsa", payload(i)[1:])),
    "simple-too-large": lambda i, m: simple(i, ("ecdsa", payload(i) + b" " * 300_000)),
    "bundle-ecdsa": lambda i, m: refer(i, bundle("ecdsa", statement(i)), predicate=SIGN),
    "bundle-rsa": lambda i, m: refer(i, bundle("rsa", statement(i))),
    "bundle-ed25519": lambda i, m: refer(i, bundle("ed25519", statement(i))),
    "bundle-manifest": lambda i, m: refer(m, bundle("ecdsa", statement(m))),
    "bundle-second": lambda i, m: refer(i, bundle("other", statement(i)), bundle("ecdsa", statement(i))),
    "bundle-listed-empty": lambda i, m: refer(i, bundle("ecdsa", statement(i)), predicate=SIGN, listed=EMPTY),
    "bundle-api": lambda i, m: refer(i, bundle("ecdsa", statement(i)), tag=False),
    "bundle-other-key": lambda i, m: refer(i, bundle("other", statement(i))),
    "bundle-other-image": lambda i, m: refer(i, bundle("ecdsa", statement(NOWHERE))),
    "bundle-attestation": lambda i, m: refer(i, bundle("ecdsa", statement(i, VULNERABLE))),
    "bundle-hidden": lambda i, m: refer(i, bundle("ecdsa", statement(i, VULNERABLE)), predicate=SIGN),
    "bundle-two": lambda i, m: refer(i, bundle("ecdsa", statement(i), signatures=2)),
    "bundle-old": lambda i, m: refer(i, bundle("ecdsa", statement(i), media_type="application/vnd.dev.sigstore.bundle+json;version=0.1")),
    "bundle-other-subject": lambda i, m: refer(i, bundle("ecdsa", statement(i)), subject=NOWHERE),
    "bundle-text": lambda i, m: refer(i, bundle("ecdsa", statement(i), kind="text/plain")),
    "bundle-bare": lambda i, m: refer(i, bundle("ecdsa", statement(i), encode=False)),
    "bundle-cut": lambda i, m: refer(i, bundle("ecdsa", statement(i))[:-9]),
    "unsigned": lambda i, m: None,
}


def push_cases(cases):
    """Pushes an image for each case, and what `cases` adds to it. Prints the digests as JSON."""
    pushed = {}
    for name, add_signature in cases.items():
        index, image, layer = put_image(name)
        referrers = add_signature(index, image)
        pushed[name] = {"index": index, "manifest": image, "layer": layer, "referrers": referrers}
    print(json.dumps(pushed))


if __name__ == "__main__":
    make_key("ecdsa", *P256)
    make_key("other", *P256)
    make_key("p384", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384")
    make_key("rsa", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048")
    make_key("ed25519", "-algorithm", "ED25519")
    push_cases(CASES)
