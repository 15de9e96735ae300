//! What a signature proves, with keys and signatures made by a small writer: Ed25519, version 4.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use proptest::prelude::*;
use stream::digest::{DigestAlgorithm, RunningDigest};

use super::algorithm::{digest_bytes, digest_of};
use super::{DetachedSignature, KeyFlaw, Keyring, OpenPgpError, now};

/// When the keys were made, in seconds since 1970.
const MADE: u32 = 1_600_000_000;

/// A day, in seconds.
const DAY: u32 = 24 * 60 * 60;

/// When documents are signed, unless a test says otherwise.
const SIGNED: u32 = MADE + 100 * DAY;

const DOCUMENT: &[u8] = b"a document";

/// A key pair, and its packet's body.
struct Pair {
    pair: Ed25519KeyPair,
    body: Vec<u8>,
}

impl Pair {
    fn new() -> Self {
        let pair = Ed25519KeyPair::generate().unwrap();
        let body = [&[4], &MADE.to_be_bytes()[..], &[27], pair.public_key().as_ref()].concat();
        Self { pair, body }
    }

    fn hashed(&self) -> Vec<u8> {
        let length = u16::try_from(self.body.len()).unwrap().to_be_bytes();
        [&[0x99], &length[..], &self.body].concat()
    }

    fn fingerprint(&self) -> Vec<u8> {
        digest_of(DigestAlgorithm::Sha1, &[&self.hashed()])
    }

    /// The body of a signature of this type over `parts`, with these subpackets and the issuer.
    fn sign(&self, kind: u8, subpackets: &[Vec<u8>], parts: &[&[u8]]) -> Vec<u8> {
        self.sign_with(8, kind, subpackets, parts)
    }

    fn sign_with(&self, hash: u8, kind: u8, subpackets: &[Vec<u8>], parts: &[&[u8]]) -> Vec<u8> {
        let issuer = [&[4], &self.fingerprint()[..]].concat();
        let area = [&subpackets.concat()[..], &subpacket(33, &issuer)].concat();
        let length = u16::try_from(area.len()).unwrap().to_be_bytes();
        let signed = [&[4, kind, 27, hash], &length[..], &area].concat();
        let count = u32::try_from(signed.len()).unwrap().to_be_bytes();
        let algorithm = if hash == 2 { DigestAlgorithm::Sha1 } else { DigestAlgorithm::Sha256 };
        let mut digest = RunningDigest::new(algorithm);
        for part in [parts, &[&signed, &[4, 0xff], &count]].concat() {
            digest.update(part);
        }
        let digest = digest_bytes(&digest.finish_digest());
        [&signed[..], &[0, 0], &digest[..2], self.pair.sign(&digest).as_ref()].concat()
    }
}

fn subpacket(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[u8::try_from(value.len() + 1).unwrap(), kind], value].concat()
}

fn created(time: u32) -> Vec<u8> {
    subpacket(2, &time.to_be_bytes())
}

fn packet(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[0xc0 | tag, 255], &length[..], body].concat()
}

/// A certificate to which a test adds packets.
struct Builder {
    primary: Pair,
    subkey: Pair,
    packets: Vec<u8>,
}

impl Builder {
    /// A primary key without any signature.
    fn bare() -> Self {
        let (primary, subkey) = (Pair::new(), Pair::new());
        let packets = packet(6, &primary.body);
        Self { primary, subkey, packets }
    }

    /// A primary key with a statement that has these key flags.
    fn with_flags(flags: u8) -> Self {
        Self::bare().direct(0x1f, &[created(MADE), subpacket(27, &[flags])])
    }

    /// Adds a signature of the primary key on itself.
    fn direct(mut self, kind: u8, subpackets: &[Vec<u8>]) -> Self {
        let signature = self.primary.sign(kind, subpackets, &[&self.primary.hashed()]);
        self.packets.extend(packet(2, &signature));
        self
    }

    /// Adds a user ID, and signatures of these types on it.
    fn user(mut self, name: &str, signatures: &[(u8, &[Vec<u8>])]) -> Self {
        self.packets.extend(packet(13, name.as_bytes()));
        let length = u32::try_from(name.len()).unwrap().to_be_bytes();
        let hashed = [&[0xb4], &length[..], name.as_bytes()].concat();
        for (kind, subpackets) in signatures {
            let parts: [&[u8]; 2] = [&self.primary.hashed(), &hashed];
            self.packets.extend(packet(2, &self.primary.sign(*kind, subpackets, &parts)));
        }
        self
    }

    /// Adds the subkey, and signatures of the primary key on it. `confirmed` adds to each a
    /// signature of the subkey.
    fn subkey(mut self, signatures: &[(u8, &[Vec<u8>])], confirmed: bool) -> Self {
        self.packets.extend(packet(14, &self.subkey.body));
        let parts: [&[u8]; 2] = [&self.primary.hashed(), &self.subkey.hashed()];
        let back = self.subkey.sign(0x19, &[created(MADE)], &parts);
        for (kind, subpackets) in signatures {
            let mut subpackets = subpackets.to_vec();
            subpackets.extend(confirmed.then(|| subpacket(32, &back)));
            self.packets.extend(packet(2, &self.primary.sign(*kind, &subpackets, &parts)));
        }
        self
    }

    fn keyring(&self) -> Keyring {
        Keyring::parse(&self.packets).unwrap()
    }

    /// Verifies a signature of the primary key at this time.
    fn check(&self, time: u32) -> Result<(), OpenPgpError> {
        check(&self.primary.sign(0, &[created(time)], &[DOCUMENT]), &self.keyring())
    }

    /// Verifies a signature of the subkey.
    fn check_subkey(&self, time: u32) -> Result<(), OpenPgpError> {
        check(&self.subkey.sign(0, &[created(time)], &[DOCUMENT]), &self.keyring())
    }
}

fn check(signature: &[u8], keyring: &Keyring) -> Result<(), OpenPgpError> {
    let signature = DetachedSignature::parse(&packet(2, signature))?;
    signature.verify(DOCUMENT, keyring).map(drop)
}

#[track_caller]
fn assert_flaw(checked: Result<(), OpenPgpError>, flaw: KeyFlaw) {
    match checked {
        Err(OpenPgpError::Key(_, found)) => assert_eq!(found, flaw),
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_the_signed_document_and_its_own_key_verify() {
    let owner = Builder::with_flags(3);
    assert_eq!(owner.check(SIGNED), Ok(()));
    let signature = owner.primary.sign(0, &[created(SIGNED)], &[b"another document"]);
    assert_eq!(check(&signature, &owner.keyring()), Err(OpenPgpError::Mismatch));
    let other = Builder::with_flags(3);
    let signature = other.primary.sign(0, &[created(SIGNED)], &[DOCUMENT]);
    assert!(matches!(check(&signature, &owner.keyring()), Err(OpenPgpError::UnknownKey(_))));
    // The other one names this key as the issuer.
    let issuer = subpacket(16, owner.primary.fingerprint().last_chunk::<8>().unwrap());
    let forged = other.primary.sign(0, &[created(SIGNED), issuer], &[DOCUMENT]);
    assert_eq!(check(&forged, &owner.keyring()), Err(OpenPgpError::Mismatch));
}

#[test]
fn the_owner_decides_whether_and_until_when_a_key_signs() {
    let lifetime = |days: u32| subpacket(9, &(days * DAY).to_be_bytes());
    assert_flaw(Builder::bare().check(SIGNED), KeyFlaw::Unowned);
    assert_flaw(Builder::with_flags(1).check(SIGNED), KeyFlaw::Purpose);
    assert_flaw(Builder::with_flags(3).check(MADE - 1), KeyFlaw::Younger);
    // Old keys do not state their purposes.
    assert_eq!(Builder::bare().direct(0x1f, &[created(MADE)]).check(SIGNED), Ok(()));
    let until = |days| Builder::bare().direct(0x1f, &[created(MADE), lifetime(days)]);
    assert_eq!(until(101).check(SIGNED), Ok(()));
    assert_flaw(until(100).check(SIGNED), KeyFlaw::Expired);
    // The newest statement counts, whether it extends or shortens the life.
    let changed = |days| until(50).direct(0x1f, &[created(MADE + DAY), lifetime(days)]);
    assert_eq!(changed(200).check(SIGNED), Ok(()));
    assert_flaw(changed(60).check(SIGNED), KeyFlaw::Expired);
    // A statement that has expired itself does not count, nor one of the future.
    let brief = [created(MADE), subpacket(3, &DAY.to_be_bytes())];
    assert_flaw(Builder::bare().direct(0x1f, &brief).check(SIGNED), KeyFlaw::Unowned);
    let later = u32::try_from(now()).unwrap() + DAY;
    assert_flaw(Builder::bare().direct(0x1f, &[created(later)]).check(SIGNED), KeyFlaw::Unowned);
    // A newer statement without a time does not extend the life that another one states.
    let statement = [created(MADE), subpacket(27, &[2]), lifetime(50)];
    let both = Builder::bare().direct(0x1f, &[created(MADE + 9)]).user("a", &[(0x13, &statement)]);
    assert_flaw(both.check(SIGNED), KeyFlaw::Expired);
    // Statements on user IDs, of which the last one is revoked.
    let statement: (u8, &[Vec<u8>]) = (0x13, &[created(MADE), subpacket(27, &[2])]);
    let taken_back: (u8, &[Vec<u8>]) = (0x30, &[created(MADE + 1)]);
    assert_eq!(Builder::bare().user("a", &[statement]).check(SIGNED), Ok(()));
    let revoked = Builder::bare().user("a", &[statement, taken_back]);
    assert_flaw(revoked.check(SIGNED), KeyFlaw::Unowned);
    let renewed: (u8, &[Vec<u8>]) = (0x13, &[created(MADE + 2), subpacket(27, &[2])]);
    let again = Builder::bare().user("a", &[statement, taken_back, renewed]);
    assert_eq!(again.check(SIGNED), Ok(()));
}

#[test]
fn revocations_count_for_the_time_that_they_state() {
    let reason = |code: u8| subpacket(29, &[code]);
    let revoked = |time: u32, code: Option<u8>| {
        let subpackets = [vec![created(time)], code.map(reason).into_iter().collect()].concat();
        Builder::with_flags(2).direct(0x20, &subpackets)
    };
    for code in [None, Some(0), Some(2), Some(99)] {
        assert_flaw(revoked(SIGNED + DAY, code).check(SIGNED), KeyFlaw::Revoked);
    }
    for code in [1, 3] {
        assert_eq!(revoked(SIGNED + 1, Some(code)).check(SIGNED), Ok(()));
        assert_flaw(revoked(SIGNED, Some(code)).check(SIGNED), KeyFlaw::Revoked);
    }
    // Behind a user ID, where it does not belong, it counts as well.
    let statement: (u8, &[Vec<u8>]) = (0x13, &[created(MADE), subpacket(27, &[2])]);
    let late = Builder::bare().user("a", &[statement]).direct(0x20, &[created(MADE)]);
    assert_flaw(late.check(SIGNED), KeyFlaw::Revoked);
    // One that is not understood counts; one by somebody else does not, unless the owner said so.
    let critical = Builder::with_flags(2).direct(0x20, &[created(MADE), subpacket(0xe4, &[])]);
    assert_flaw(critical.check(SIGNED), KeyFlaw::Revoked);
    let stranger = Pair::new();
    let mut by_stranger = Builder::with_flags(2);
    let revocation = stranger.sign(0x20, &[created(MADE)], &[&by_stranger.primary.hashed()]);
    by_stranger.packets.extend(packet(2, &revocation));
    assert_eq!(by_stranger.check(SIGNED), Ok(()));
    let revoker = subpacket(12, &[&[0x80, 27], &stranger.fingerprint()[..]].concat());
    let mut designated = Builder::with_flags(2).direct(0x1f, &[created(MADE), revoker]);
    designated.packets.extend(packet(2, &revocation));
    assert_flaw(designated.check(SIGNED), KeyFlaw::Revoked);
    // A copy of the key without the revocation, before or after.
    let owner = Builder::with_flags(2);
    let clean = owner.packets.clone();
    let mut owner = owner.direct(0x20, &[created(MADE)]);
    let revoked = owner.packets.clone();
    for copies in [[&clean, &revoked], [&revoked, &clean]] {
        owner.packets = copies.map(Vec::as_slice).concat();
        assert_flaw(owner.check(SIGNED), KeyFlaw::Revoked);
    }
    // A revocation whose version is not supported.
    let mut old = Builder::with_flags(2);
    old.packets.extend(packet(2, &[3, 5, 0x20]));
    assert!(Keyring::parse(&old.packets).is_err());
}

#[test]
fn a_subkey_signs_if_both_keys_confirm_it() {
    let binding = |flags: u8| [created(MADE), subpacket(27, &[flags])];
    let owner = || Builder::with_flags(1);
    assert_eq!(owner().subkey(&[(0x18, &binding(2))], true).check_subkey(SIGNED), Ok(()));
    let unconfirmed = owner().subkey(&[(0x18, &binding(2))], false);
    assert_flaw(unconfirmed.check_subkey(SIGNED), KeyFlaw::Unbound);
    assert_flaw(owner().subkey(&[], true).check_subkey(SIGNED), KeyFlaw::Unbound);
    for flags in [0, 1, 12] {
        let other = owner().subkey(&[(0x18, &binding(flags))], true);
        assert_flaw(other.check_subkey(SIGNED), KeyFlaw::Purpose);
    }
    let silent = owner().subkey(&[(0x18, &[created(MADE)])], true);
    assert_flaw(silent.check_subkey(SIGNED), KeyFlaw::Purpose);
    let brief = [&binding(2)[..], &[subpacket(9, &DAY.to_be_bytes())]].concat();
    let brief = owner().subkey(&[(0x18, &brief)], true);
    assert_flaw(brief.check_subkey(SIGNED), KeyFlaw::Expired);
    let revoked = owner().subkey(&[(0x18, &binding(2)), (0x28, &[created(SIGNED + DAY)])], true);
    assert_flaw(revoked.check_subkey(SIGNED), KeyFlaw::Revoked);
    let with_primary = |kind, subpackets: &[Vec<u8>]| {
        owner().direct(kind, subpackets).subkey(&[(0x18, &binding(2))], true)
    };
    let dead = with_primary(0x20, &[created(MADE)]);
    assert_flaw(dead.check_subkey(SIGNED), KeyFlaw::Revoked);
    let expired = with_primary(0x1f, &[created(MADE + 1), subpacket(9, &DAY.to_be_bytes())]);
    assert_flaw(expired.check_subkey(SIGNED), KeyFlaw::Expired);
    // Somebody adopts the subkey of another.
    let victim = owner().subkey(&[(0x18, &binding(2))], true);
    let mut thief = owner();
    thief.subkey =
        Pair { pair: Ed25519KeyPair::generate().unwrap(), body: victim.subkey.body.clone() };
    let thief = thief.subkey(&[(0x18, &binding(2))], true);
    let signature = victim.subkey.sign(0, &[created(SIGNED)], &[DOCUMENT]);
    assert_eq!(check(&signature, &victim.keyring()), Ok(()));
    assert_flaw(check(&signature, &thief.keyring()), KeyFlaw::Unbound);
}

#[test]
fn signatures_of_other_forms_are_refused() {
    let owner = Builder::with_flags(2);
    let (keyring, key) = (owner.keyring(), &owner.primary);
    let future = u32::try_from(now()).unwrap() + 3 * DAY;
    let brief = [created(SIGNED), subpacket(3, &DAY.to_be_bytes())];
    for (signature, part) in [
        (key.sign(1, &[created(SIGNED)], &[DOCUMENT]), "type 0x01"),
        (key.sign_with(2, 0, &[created(SIGNED)], &[DOCUMENT]), "SHA-256 or SHA-512"),
        (key.sign(0, &[created(SIGNED), subpacket(0xe4, &[])], &[DOCUMENT]), "critical"),
        (key.sign(0, &[created(SIGNED), subpacket(0x94, &[0; 8])], &[DOCUMENT]), "critical"),
        (key.sign(0, &[created(SIGNED), created(MADE)], &[DOCUMENT]), "twice"),
        (key.sign(0, &[created(future)], &[DOCUMENT]), "in the future"),
        (key.sign(0, &[], &[DOCUMENT]), "in the future"),
        (key.sign(0, &brief, &[DOCUMENT]), "has expired"),
        (vec![3, 5, 0], "version 3"),
        (vec![4, 0, 17, 8, 0, 0, 0, 0, 0, 0], "algorithm 17"),
    ] {
        let error = check(&signature, &keyring).unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
    // One good signature suffices, before or after others.
    let other = Builder::with_flags(2).primary.sign(0, &[created(SIGNED)], &[DOCUMENT]);
    let good = key.sign(0, &[created(SIGNED)], &[DOCUMENT]);
    for pair in [[&other, &good], [&good, &other]] {
        let file = pair.map(|signature| packet(2, signature)).concat();
        let parsed = DetachedSignature::parse(&file).unwrap();
        let fingerprint = parsed.verify(DOCUMENT, &keyring).unwrap();
        assert_eq!(fingerprint, hex::encode_upper(key.fingerprint()));
    }
}

proptest! {
    /// Every byte of a signature is either needed or part of what is only a hint.
    #[test]
    fn a_changed_signature_never_verifies_other_bytes(
        at in any::<prop::sample::Index>(),
        bit in 0..8,
    ) {
        let owner = Builder::with_flags(2);
        let mut signature = owner.primary.sign(0, &[created(SIGNED)], &[DOCUMENT]);
        let at = at.index(signature.len());
        signature[at] ^= 1u8 << bit;
        // The first two bytes of the digest are a hint.
        let hint = signature.len() - 66..signature.len() - 64;
        let checked = check(&signature, &owner.keyring());
        prop_assert_eq!(checked.is_ok(), hint.contains(&at));
    }

    /// A changed keyring can no longer verify, except where it has hints: the beginning of a
    /// digest, or a packet that is not needed.
    #[test]
    fn a_changed_binding_never_verifies(at in any::<prop::sample::Index>(), bit in 0..8) {
        let owner = Builder::with_flags(1);
        let before = owner.packets.len();
        let owner = owner.subkey(&[(0x18, &[created(MADE), subpacket(27, &[2])])], true);
        let mut packets = owner.packets.clone();
        let at = before + at.index(packets.len() - before);
        packets[at] ^= 1u8 << bit;
        let signature = owner.subkey.sign(0, &[created(SIGNED)], &[DOCUMENT]);
        let checked = Keyring::parse(&packets).and_then(|keyring| check(&signature, &keyring));
        let end = packets.len();
        prop_assert_eq!(checked.is_ok(), (end - 66..end - 64).contains(&at));
    }

    #[test]
    fn any_bytes_are_a_keyring_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        Keyring::parse(&bytes).ok();
        Keyring::parse(&packet(6, &bytes)).ok();
        DetachedSignature::parse(&packet(2, &bytes)).ok();
        let mut packets = packet(6, &Pair::new().body);
        packets.extend(packet(2, &bytes));
        Keyring::parse(&packets).ok();
    }
}
