"""The compared programs: for every image our importer, and what a user would choose instead.

In the commands, {url} is the image on the web server, {file} the image as a file, {out} the
target, {tmp} a folder for temporary files and {us} our importer. All commands end when the
target's data is synced.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Way:
    """A command that writes an image to a target."""

    name: str
    command: str


OVER_HTTP = Way("cdi-importer", "{us} import {url} {out}")
DISCARD = Way("limit: curl to /dev/null", "curl -sS -o /dev/null {url}")
DOWNLOAD = "curl -sS -o {tmp}/image {url}"

# Large blocks are the fastest for dd, compared with 512, 4k and 64k.
DD = "dd of={out} bs=1M iflag=fullblock conv=sparse,fsync status=none"
DD_DEVICE = "dd of={out} bs=1M iflag=fullblock oflag=direct conv=fsync status=none"


def decoder_alone(command: str) -> Way:
    return Way(f"limit: {command} to /dev/null", f"{command} < {{file}} > /dev/null")


def through_nbdkit(name: str, client: str) -> Way:
    """Runs a client with an NBD server that fetches ranges from the web server. {uri} becomes its socket."""
    return Way(name, "nbdkit --unix - --threads 16 curl {url} --run '" + client.replace("{uri}", "$uri") + "'")


def piped(name: str, decoder: str, writer: str = DD) -> Way:
    return Way(name, f"curl -sS {{url}} | {decoder}{writer}")


def downloaded(name: str, options: str) -> Way:
    """Downloads the image to a file, and then runs qemu-img with these options."""
    command = f"{DOWNLOAD} && qemu-img convert {options} -O raw {{tmp}}/image {{out}} && sync {{out}}"
    return Way(f"download, qemu-img {name}", command)


CONVERT = downloaded("convert", "")
CONVERT_UNORDERED = downloaded("convert -W -t none", "-W -t none")
TWO_PHASES = Way(
    # curl replaces upstream's Go client, and nothing restarts between the phases, so this is
    # faster than upstream itself.
    "upstream's two phases",
    DOWNLOAD
    + " && sync {tmp}/image && qemu-img info --output=json {tmp}/image > /dev/null"
    + " && qemu-img convert -t writeback -p -O raw {tmp}/image {out} > /dev/null && sync {out}",
)
NBDKIT_CONVERT = through_nbdkit(
    "nbdkit curl, qemu-img convert", 'qemu-img convert -W -f qcow2 -O raw "{uri}" {out} && sync {out}'
)
NBDKIT_COPY = through_nbdkit("nbdkit curl, nbdcopy", 'nbdcopy --flush --destination-is-zero "{uri}" {out} && sync {out}')


@dataclass(frozen=True)
class Case:
    """An image, our importer, and its peers. `limits` are not peers, because they do only a part of the work."""

    name: str
    image: str
    peers: list[Way]
    limits: list[Way] = field(default_factory=list)
    us: Way = OVER_HTTP
    target: str = "file"


FILES = [
    Case(
        "raw",
        "disk.raw",
        [NBDKIT_COPY, piped("curl, dd", "")],
        [DISCARD, Way("limit: cp --sparse", "cp --sparse=always {file} {out} && sync {out}")],
    ),
    Case("qcow2", "disk.qcow2", [NBDKIT_CONVERT, CONVERT, CONVERT_UNORDERED, TWO_PHASES], [DISCARD]),
    Case("qcow2 zlib", "disk.zlib.qcow2", [CONVERT_UNORDERED, CONVERT], [DISCARD]),
    Case("qcow2 zstd", "disk.zstd.qcow2", [CONVERT, CONVERT_UNORDERED], [DISCARD]),
    Case(
        "raw.gz",
        "disk.raw.gz",
        [piped("curl, igzip, dd", "igzip -dc | "), piped("curl, pigz, dd", "pigz -dc | ")],
        [decoder_alone("igzip -dc")],
    ),
    Case(
        "raw.zst",
        "disk.raw.zst",
        [
            Way("curl, zstd --sparse", "curl -sS {url} | zstd -q -d --sparse -o {out} && sync {out}"),
            piped("curl, zstd, dd", "zstd -dc | "),
        ],
        [decoder_alone("zstd -dc")],
    ),
    Case("raw.xz", "disk.raw.xz", [piped("curl, xz -T2, dd", "xz -dc -T2 | ")], [decoder_alone("xz -dc -T2")]),
    Case(
        "qcow2 zlib, local",
        "disk.zlib.qcow2",
        [
            Way("qemu-img convert -W -m 16", "qemu-img convert -W -m 16 -O raw {file} {out} && sync {out}"),
            Way("qemu-img convert", "qemu-img convert -O raw {file} {out} && sync {out}"),
        ],
        us=Way("cdi-importer", "{us} import {file} {out}"),
    ),
]

DEVICES = [
    Case(name, image, peers, target="device")
    for name, image, peers in [
        (
            "raw",
            "disk.raw",
            [
                through_nbdkit("nbdkit curl, nbdcopy", 'nbdcopy --flush "{uri}" {out} && sync {out}'),
                piped("curl, dd", "", DD_DEVICE),
            ],
        ),
        (
            "qcow2",
            "disk.qcow2",
            [
                through_nbdkit(
                    "nbdkit curl, qemu-img convert", 'qemu-img convert -n -W -f qcow2 -O raw "{uri}" {out} && sync {out}'
                ),
                downloaded("convert", "-n"),
            ],
        ),
        ("qcow2 zlib", "disk.zlib.qcow2", [downloaded("convert -W -t none", "-n -W -t none")]),
        (
            "raw.gz",
            "disk.raw.gz",
            [piped("curl, igzip, dd", "igzip -dc | ", DD_DEVICE), piped("curl, pigz, dd", "pigz -dc | ", DD_DEVICE)],
        ),
        ("raw.zst", "disk.raw.zst", [piped("curl, zstd, dd", "zstd -dc | ", DD_DEVICE)]),
    ]
]
