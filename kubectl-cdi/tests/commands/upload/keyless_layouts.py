"""Pushes images with keyless signatures as cosign 2 and 3 store them, good and bad, to a registry.

keyless_layouts.py REGISTRY FOLDER: makes an instance of Sigstore in FOLDER, which is a certificate
authority, a log of certificates, a log of signatures and a clock, with its trusted_root.json. Pushes
each case below to the repository `disks`, with its name as the tag. Prints the digests as JSON.
Nothing here shares code with the client: openssl signs, and the structures follow RFC 5280 (X.509),
RFC 6962 (logs of certificates), and the documents of Fulcio and Rekor (both generations).
"""

import base64
import datetime
import hashlib
import json
import pathlib
import sys
import time

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).parents[4] / "importer/tests/sources/registry"))
import cosign_layouts as cosign  # noqa: E402

ISSUER = "https://issuer.example.org"
WORKFLOW = "https://forge.example.org/vm/.github/workflows/release.yml@refs/tags/v1"
EMAIL = "release@example.org"

# When most certificates were issued; they are valid for ten minutes, as Fulcio's are.
NOW = int(time.time())
ISSUED = NOW - 86400
LIFETIME = 600

SHA256_ECDSA = "1.2.840.10045.4.3.2"
COMMON_NAME = "2.5.4.3"
KEY_USAGE, SUBJECT_NAMES, CONSTRAINTS, PURPOSES = "2.5.29.15", "2.5.29.17", "2.5.29.19", "2.5.29.37"
CODE_SIGNING, SERVER, CLOCK = "1.3.6.1.5.5.7.3.3", "1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.8"
TIMESTAMPS = "1.3.6.1.4.1.11129.2.4.2"
FULCIO_ISSUER = "1.3.6.1.4.1.57264.1.8"

CLOCK_SETTINGS = f"""
[tsa]
default_tsa = clock
[clock]
serial = {cosign.FOLDER}/clock.serial
default_policy = 1.2.3.4
digests = sha256
signer_digest = sha256
ess_cert_id_alg = sha256
"""


def base64_of(data):
    return base64.b64encode(data).decode()


def der(tag, *parts):
    content = b"".join(parts)
    length = len(content)
    if length < 128:
        return bytes([tag, length]) + content
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([tag, 128 + len(size)]) + size + content


def sequence(*parts):
    return der(0x30, *parts)


def identifier(text):
    first, second, *rest = map(int, text.split("."))
    encoded = [first * 40 + second]
    for number in rest:
        groups = [number & 127]
        while number := number >> 7:
            groups.append(number & 127 | 128)
        encoded += reversed(groups)
    return der(6, bytes(encoded))


def extension(name, value, critical=False):
    return sequence(identifier(name), der(1, b"\xff") if critical else b"", der(4, value))


def name_of(text):
    return sequence(*[der(0x31, sequence(identifier(COMMON_NAME), der(12, text.encode())))] if text else [])


def time_of(seconds):
    date = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return der(0x17, date.strftime("%y%m%d%H%M%SZ").encode())


def public_key(key):
    return cosign.openssl("pkey", "-in", cosign.FOLDER / f"{key}.pem", "-pubout", "-outform", "DER")


def log_id(key):
    return hashlib.sha256(public_key(key)).digest()


def to_sign(key, subject, authority, begin, lifetime, extensions, serial=b"\x01"):
    algorithm = sequence(identifier(SHA256_ECDSA))
    validity = sequence(time_of(begin), time_of(begin + lifetime))
    return sequence(
        der(0xA0, der(2, b"\x02")), der(2, serial), algorithm, name_of(authority), validity,
        name_of(subject), public_key(key), der(0xA3, sequence(*extensions)),
    )


def signed(authority, body):
    signature = der(3, b"\x00", cosign.sign(authority, body))
    return sequence(body, sequence(identifier(SHA256_ECDSA)), signature)


def certify_authority(key):
    extensions = [extension(CONSTRAINTS, sequence(der(1, b"\xff")), True), extension(KEY_USAGE, der(3, b"\x02\x04"), True)]
    return signed(key, to_sign(key, key, key, ISSUED - 86400, 10 * 86400, extensions))


def certificate_timestamp(log, authority, body):
    """The promise of a log of certificates (RFC 6962 §3.2 and §3.3)."""
    moment = (ISSUED * 1000).to_bytes(8, "big")
    issuer = hashlib.sha256(public_key(authority)).digest()
    message = b"\x00\x00" + moment + b"\x00\x01" + issuer + len(body).to_bytes(3, "big") + body + b"\x00\x00"
    signature = cosign.sign(log, message)
    promise = b"\x00" + log_id(log) + moment + b"\x00\x00\x04\x03" + len(signature).to_bytes(2, "big") + signature
    promises = len(promise).to_bytes(2, "big") + promise
    return der(4, len(promises).to_bytes(2, "big") + promises)


def certify(key, identity=WORKFLOW, issuer=ISSUER, authority="authority", log="certificates", purpose=CODE_SIGNING, begin=ISSUED):
    """Makes a key, and the certificate of its owner."""
    cosign.make_key(key, *cosign.P256)
    name = der(0x86 if "://" in identity else 0x81, identity.encode())
    extensions = [
        extension(KEY_USAGE, der(3, b"\x07\x80"), True),
        extension(PURPOSES, sequence(identifier(purpose))),
        *([extension(SUBJECT_NAMES, sequence(name), True)] if identity else []),
        extension(FULCIO_ISSUER, der(12, issuer.encode())),
    ]
    body = to_sign(key, "", authority, begin, LIFETIME, extensions)
    if log:
        extensions.append(extension(TIMESTAMPS, certificate_timestamp(log, authority, body)))
        body = to_sign(key, "", authority, begin, LIFETIME, extensions)
    return signed(authority, body)


def certify_clock():
    purpose = extension(PURPOSES, sequence(identifier(CLOCK)), True)
    extensions = [extension(KEY_USAGE, der(3, b"\x07\x80"), True), purpose]
    return signed("times", to_sign("clock", "clock", "times", ISSUED, 10 * 86400, extensions, b"\x02"))


def time_stamp(data):
    """The current time, signed together with `data` (RFC 3161)."""
    settings, query, signer = (cosign.FOLDER / f"clock.{name}" for name in ("conf", "query", "crt"))
    settings.write_text(CLOCK_SETTINGS)
    signer.write_text(pem(CERTIFICATES["clock"]))
    query.write_bytes(cosign.openssl("ts", "-query", "-digest", hashlib.sha256(data).hexdigest(), "-sha256", "-cert"))
    key = cosign.FOLDER / "clock.pem"
    return cosign.openssl("ts", "-reply", "-config", settings, "-queryfile", query, "-signer", signer, "-inkey", key)


def pem(certificate):
    text = base64.encodebytes(certificate).decode()
    return f"-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n"


def canonical(document):
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def hash_of(data):
    return {"algorithm": "sha256", "value": hashlib.sha256(data).hexdigest()}


def promise(log, body, seconds):
    """A log's promise to add an entry."""
    entry = {"body": base64_of(body), "integratedTime": seconds, "logID": log_id(log).hex(), "logIndex": 7}
    return cosign.sign(log, canonical(entry)), entry


def proof(log, body):
    """The proof that the first of two entries is in a log (RFC 6962 §2.1), and the log's head."""
    leaf, other = (hashlib.sha256(b"\x00" + data).digest() for data in (body, b"another entry"))
    root = hashlib.sha256(b"\x01" + leaf + other).digest()
    note = f"log.example.org\n2\n{base64_of(root)}\n"
    signature = base64_of(log_id(log)[:4] + cosign.sign(log, note.encode()))
    return {
        "logIndex": "0", "rootHash": base64_of(root), "treeSize": "2", "hashes": [base64_of(other)],
        "checkpoint": {"envelope": f"{note}\n— log.example.org {signature}\n"},
    }


def logged(document, certificate, log, body, change, material=None, **fields):
    """Returns a bundle with the entry of a log, which has these further fields."""
    kind = {"kind": json.loads(body)["kind"], "version": json.loads(body)["apiVersion"]}
    entry = {"logId": {"keyId": base64_of(log_id(log))}, "kindVersion": kind, "inclusionProof": proof(log, body), **fields}
    entry["canonicalizedBody"] = base64_of(body)
    raw = {"rawBytes": base64_of(certificate)}
    document["verificationMaterial"] = {"certificate": raw, "tlogEntries": [entry], **(material or {})}
    change(document)
    return json.dumps(document).encode()


def bundle(key, statement, certificate, log="signatures", seconds=ISSUED + 30, entry_for=None, change=lambda document: None):
    document = json.loads(cosign.bundle(key, statement))
    text = document["dsseEnvelope"]["signatures"][0]["sig"]
    signatures = [{"signature": text, "verifier": base64_of(pem(certificate).encode())}]
    spec = {"envelopeHash": hash_of(b""), "payloadHash": hash_of(entry_for or statement), "signatures": signatures}
    body = canonical({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec})
    stamp = {"signedEntryTimestamp": base64_of(promise(log, body, seconds)[0])}
    return logged(document, certificate, log, body, change, logIndex="7", integratedTime=str(seconds), inclusionPromise=stamp)


def second_bundle(key, statement, certificate, stamped=True, change=lambda document: None):
    """A bundle with an entry of the second generation of logs, which state no time."""
    document = json.loads(cosign.bundle(key, statement))
    signature = document["dsseEnvelope"]["signatures"][0]["sig"]
    data = f"DSSEv1 {len(cosign.IN_TOTO)} {cosign.IN_TOTO} {len(statement)} ".encode() + statement
    verifier = {"keyDetails": "PKIX_ECDSA_P256_SHA_256", "x509Certificate": {"rawBytes": base64_of(certificate)}}
    digest = {"algorithm": "SHA2_256", "digest": base64_of(hashlib.sha256(data).digest())}
    spec = {"hashedRekordV002": {"data": digest, "signature": {"content": signature, "verifier": verifier}}}
    body = canonical({"apiVersion": "0.0.2", "kind": "hashedrekord", "spec": spec})
    material = {}
    if stamped:
        stamp = time_stamp(base64.b64decode(signature) if stamped is True else stamped)
        material["timestampVerificationData"] = {"rfc3161Timestamps": [{"signedTimestamp": base64_of(stamp)}]}
    return logged(document, certificate, "signatures", body, change, material, logIndex="0")


def second(digest, case, begin=NOW - 60, **options):
    """Adds a bundle as cosign makes it with logs of the second generation."""
    certificate = certify(case, begin=begin)
    cosign.refer(digest, second_bundle(case, cosign.statement(digest), certificate, **options))


def entry_of(document):
    return document["verificationMaterial"]["tlogEntries"][0]


def without_proof(document):
    del entry_of(document)["inclusionProof"]


def without_entry(document):
    document["verificationMaterial"]["tlogEntries"] = []


def with_earlier_time(document):
    entry_of(document)["integratedTime"] = str(ISSUED + 29)


def with_other_root(document):
    entry_of(document)["inclusionProof"]["hashes"] = [base64_of(b"0" * 32)]


def refer(digest, case, statement=None, key=None, owner=None, **options):
    """Adds a bundle whose certificate (`owner`) and log entry have these peculiarities."""
    certificate = certify(case, **(owner or {}))
    cosign.refer(digest, bundle(key or case, statement or cosign.statement(digest), certificate, **options))


def simple(digest, case, parts=("certificate", "bundle"), payload=None, seconds=ISSUED + 30, identity=WORKFLOW):
    """Adds a signature as cosign 2 does, with these parts."""
    certificate, payload = pem(certify(case, identity)), payload or cosign.payload(digest)
    signature = base64_of(cosign.sign(case, payload))
    public = {"content": base64_of(certificate.encode())}
    spec = {"data": {"hash": hash_of(payload)}, "signature": {"content": signature, "publicKey": public}}
    body = canonical({"apiVersion": "0.0.1", "kind": "hashedrekord", "spec": spec})
    timestamp, entry = promise("signatures", body, seconds)
    found = {
        "certificate": certificate,
        "bundle": json.dumps({"SignedEntryTimestamp": base64_of(timestamp), "Payload": entry}),
    }
    more = {f"dev.sigstore.cosign/{part}": found[part] for part in parts}
    cosign.simple(digest, ([signature], payload), **more)


CASES = {
    "bundle-workflow": lambda i, m: refer(i, "bundle-workflow"),
    "bundle-email": lambda i, m: refer(i, "bundle-email", owner={"identity": EMAIL}),
    "bundle-manifest": lambda i, m: refer(m, "bundle-manifest"),
    "second-workflow": lambda i, m: second(i, "second-workflow"),
    "simple-workflow": lambda i, m: simple(i, "simple-workflow"),
    "simple-email": lambda i, m: simple(i, "simple-email", identity=EMAIL),
    "other-identity": lambda i, m: refer(i, "other-identity", owner={"identity": WORKFLOW + "0"}),
    "no-identity": lambda i, m: refer(i, "no-identity", owner={"identity": ""}),
    "other-issuer": lambda i, m: refer(i, "other-issuer", owner={"issuer": "https://other.example.org"}),
    "other-authority": lambda i, m: refer(i, "other-authority", owner={"authority": "foreign"}),
    "other-purpose": lambda i, m: refer(i, "other-purpose", owner={"purpose": SERVER}),
    "other-key": lambda i, m: refer(i, "other-key", key="foreign"),
    "other-image": lambda i, m: refer(i, "other-image", cosign.statement(cosign.NOWHERE)),
    "other-entry": lambda i, m: refer(i, "other-entry", entry_for=b"{}"),
    "other-log": lambda i, m: refer(i, "other-log", log="foreign"),
    "attestation": lambda i, m: refer(i, "attestation", cosign.statement(i, cosign.VULNERABLE)),
    "no-certificate-log": lambda i, m: refer(i, "no-certificate-log", owner={"log": None}),
    "other-certificate-log": lambda i, m: refer(i, "other-certificate-log", owner={"log": "foreign"}),
    "too-late": lambda i, m: refer(i, "too-late", seconds=ISSUED + LIFETIME + 1),
    "too-early": lambda i, m: refer(i, "too-early", seconds=ISSUED - 1),
    "changed-time": lambda i, m: refer(i, "changed-time", change=with_earlier_time),
    "changed-proof": lambda i, m: refer(i, "changed-proof", change=with_other_root),
    "no-proof": lambda i, m: refer(i, "no-proof", change=without_proof),
    "no-entry": lambda i, m: refer(i, "no-entry", change=without_entry),
    "second-no-time": lambda i, m: second(i, "second-no-time", stamped=False),
    "second-other-time": lambda i, m: second(i, "second-other-time", stamped=b"another signature"),
    "second-too-late": lambda i, m: second(i, "second-too-late", begin=ISSUED),
    "second-changed-proof": lambda i, m: second(i, "second-changed-proof", change=with_other_root),
    "key": lambda i, m: cosign.refer(i, cosign.bundle("foreign", cosign.statement(i))),
    "simple-no-certificate": lambda i, m: simple(i, "simple-no-certificate", parts=["bundle"]),
    "simple-no-entry": lambda i, m: simple(i, "simple-no-entry", parts=["certificate"]),
    "simple-other-identity": lambda i, m: simple(i, "simple-other-identity", identity=EMAIL + "x"),
    "simple-other-image": lambda i, m: simple(i, "simple-other-image", payload=cosign.payload(cosign.NOWHERE)),
    "simple-too-late": lambda i, m: simple(i, "simple-too-late", seconds=ISSUED + LIFETIME + 1),
    "unsigned": lambda i, m: None,
}


def log_of(key):
    begin = datetime.datetime.fromtimestamp(ISSUED - 86400, datetime.timezone.utc)
    window = {"start": begin.strftime("%Y-%m-%dT%H:%M:%SZ")}
    about = {"rawBytes": base64_of(public_key(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": window}
    identity = {"keyId": base64_of(log_id(key))}
    return {"baseUrl": f"https://{key}.example.org", "hashAlgorithm": "SHA2_256", "publicKey": about, "logId": identity}


def trusted_root():
    def authority(name, *names):
        chain = {"certificates": [{"rawBytes": base64_of(CERTIFICATES[each])} for each in names]}
        return {"subject": {"commonName": name}, "uri": f"https://{name}.example.org", "certChain": chain}

    return {
        "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
        "tlogs": [log_of("signatures")], "certificateAuthorities": [authority("authority", "authority")],
        "timestampAuthorities": [authority("times", "clock", "times")], "ctlogs": [log_of("certificates")],
    }


for name in ("authority", "certificates", "signatures", "times", "clock", "foreign"):
    cosign.make_key(name, *cosign.P256)
CERTIFICATES = {name: certify_authority(name) for name in ("authority", "times")}
CERTIFICATES["clock"] = certify_clock()
(cosign.FOLDER / "trusted_root.json").write_text(json.dumps(trusted_root()))
cosign.push_cases(CASES)
