#!/usr/bin/env bash
# openpgp_layouts.sh FOLDER: signs sums, disk.img and, if it exists, large.qcow2 in FOLDER with GnuPG,
# as publishers do, and as they should not. Writes the keyrings trusted.gpg and rsa.asc.
set -euo pipefail
cd "$1"
export GNUPGHOME=$1/gnupg
mkdir -m 700 "$GNUPGHOME"
trap 'gpgconf --kill all; rm -r "$GNUPGHOME"' EXIT

# at TIME ARGUMENT…: GnuPG with a clock that stands still (!) at this time. If it ran, a key that takes
# more than a second to make would be newer than the signatures it makes next.
at() {
    local time=$1
    shift
    gpg --batch --quiet --no-tty --yes --no-permission-warning --pinentry-mode loopback --passphrase '' \
        --faked-system-time "$time!" "$@"
}
# The same, at the time of most keys.
run() { at 20240101T000000 "$@"; }
fingerprint() { gpg --batch --with-colons --list-keys "=$1" | awk -F: '$1 == "fpr" { print $10; exit }'; }

run --quick-gen-key rsa rsa2048 sign never
run --quick-gen-key ed25519 ed25519 sign never
run --quick-gen-key p256 nistp256 sign never
run --quick-gen-key other ed25519 sign never
run --quick-gen-key subkey ed25519 cert never
run --quick-add-key "$(fingerprint subkey)" rsa2048 sign never
at 20090101T000000 --cert-digest-algo SHA1 --quick-gen-key old rsa2048 sign never
for name in expired revoked retired; do
    at 20200101T000000 --quick-gen-key $name ed25519 sign never
done

# detach NAME ENDING TIME ARGUMENT…: a list, and the signature beside it.
detach() {
    cp sums "$1"
    at "$3" --output "$1.$2" "${@:4}" --detach-sign "$1"
}
detach ubuntu gpg 20240102T000000 --armor --digest-algo SHA512 -u rsa
detach debian sign 20240102T000000 --armor -u ed25519
detach alma asc 20240102T000000 --armor -u p256
detach binary gpg 20240102T000000 -u ed25519
detach subkey asc 20240102T000000 --armor -u subkey
detach old gpg 20240102T000000 --armor --digest-algo SHA256 -u old
detach two gpg 20240102T000000 --armor -u other -u rsa
detach other gpg 20240102T000000 -u other
detach sha1 gpg 20240102T000000 --digest-algo SHA1 -u rsa
detach text gpg 20240102T000000 --textmode -u rsa
detach future gpg 21000101T000000 -u rsa
detach short gpg 20240102T000000 --default-sig-expire 5 -u rsa
detach before-expiry gpg 20200102T000000 -u expired
detach after-expiry gpg 20220101T000000 -u expired
detach revoked gpg 20200102T000000 -u revoked
detach before-retirement gpg 20200102T000000 -u retired
detach after-retirement gpg 20220101T000000 -u retired
detach changed gpg 20240102T000000 -u rsa
echo '# one more line' >>changed
: >unsigned-empty
cp sums unsigned
detach damaged gpg 20240102T000000 --armor -u rsa
sed -i '6s/^...../AAAAA/' damaged.gpg
detach cut gpg 20240102T000000 -u rsa
truncate -s 100 cut.gpg

run --output fedora -u rsa --clear-sign sums
sed 's/^\([0-9a-f]*\)  disk.img/0\1  disk.img/' fedora >fedora-changed
{ cat sums && cat fedora; } >fedora-before
{ cat fedora && cat sums; } >fedora-after
sed 's/^Hash: .*/&\nComment: x/' fedora >fedora-header
run --output fedora-other -u other --clear-sign sums

at 20200601T000000 --quick-set-expire "$(fingerprint expired)" 1y
sed 's/^:-/-/' "$GNUPGHOME/openpgp-revocs.d/$(fingerprint revoked).rev" | run --import
# Retired in 2021, which older signatures survive.
printf 'y\n3\n\ny\n' | gpg --no-tty --quiet --faked-system-time 20210101T000000! --pinentry-mode loopback \
    --passphrase '' --command-fd 0 --output retired.rev --gen-revoke retired 2>/dev/null
run --import retired.rev

run --output image.sig -u ed25519 --detach-sign disk.img
run --armor --output image.asc -u rsa --detach-sign disk.img
[ ! -e large.qcow2 ] || run --output large.sig -u rsa --detach-sign large.qcow2
run --output image-other.sig -u other --detach-sign disk.img
run --output image-of-other.sig -u rsa --detach-sign other.img

run --output trusted.gpg --export rsa ed25519 p256 subkey old expired revoked retired
run --output rsa.asc --armor --export rsa
run --output secret.asc --armor --export-secret-keys rsa
