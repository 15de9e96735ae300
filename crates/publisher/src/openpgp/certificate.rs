//! Keys with what their owners state about them (RFC 9580 §10.1), and which of them may sign.

use super::armor::{self, read_packets};
use super::key::PgpKey;
use super::packet::{
    self, PUBLIC_KEY, PUBLIC_SUBKEY, Packet, SECRET_KEY, USER_ATTRIBUTE, USER_ID, split_packets,
};
use super::signature::{
    CERTIFICATION_REVOCATION, CERTIFICATIONS, DIRECT_KEY, KEY_REVOCATION, PRIMARY_BINDING,
    PgpSignature, SUBKEY_BINDING, SUBKEY_REVOCATION,
};
use super::subpackets::SIGN_FLAG;
use super::{KeyFlaw, OpenPgpError};

/// Maximum number of keys in a keyring and of parts of one key, and of signatures on one part.
const MAX_KEYS: usize = 1024;
const MAX_SELF_SIGNATURES: usize = 128;

/// Public keys that are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyring(Vec<Certificate>);

/// A primary key, with the signatures about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Certificate {
    primary: PgpKey,
    direct: Vec<PgpSignature>,
    /// User IDs as they are hashed, each with the signatures after it.
    users: Vec<(Vec<u8>, Vec<PgpSignature>)>,
    subkeys: Vec<(PgpKey, Vec<PgpSignature>)>,
    /// The part that the next signature of the file is about.
    part: CertificatePart,
}

/// A part of a certificate, by its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CertificatePart {
    Primary,
    User(usize),
    Subkey(usize),
}

/// A key of a certificate.
#[derive(Clone, Copy)]
pub(super) struct CertificateKey<'c> {
    certificate: &'c Certificate,
    /// `None` for the primary key.
    subkey: Option<&'c (PgpKey, Vec<PgpSignature>)>,
}

impl Keyring {
    /// Reads a file of keys: binary, or any number of armoured blocks. Keys and signatures that
    /// are not supported are left out.
    pub fn parse(bytes: &[u8]) -> Result<Self, OpenPgpError> {
        let packets = read_packets(bytes, armor::PUBLIC_KEY)?;
        let mut certificates: Vec<Certificate> = Vec::new();
        let mut current: Option<usize> = None;
        for Packet { tag, body } in split_packets(&packets)? {
            if tag == SECRET_KEY {
                current = None;
            }
            if tag != PUBLIC_KEY {
                if let Some(certificate) = current.and_then(|at| certificates.get_mut(at)) {
                    certificate.add_packet(tag, body)?;
                }
                continue;
            }
            // A copy of a key may have a revocation that another copy lacks.
            current = PgpKey::read(body)?.map(|key| {
                let known = certificates.iter().position(|known| known.primary == key);
                known.unwrap_or_else(|| {
                    certificates.push(Certificate::new(key));
                    certificates.len() - 1
                })
            });
            if let Some(certificate) = current.and_then(|at| certificates.get_mut(at)) {
                certificate.part = CertificatePart::Primary;
            }
            if certificates.len() > MAX_KEYS {
                return Err(OpenPgpError::Malformed("it has more than 1024 keys"));
            }
        }
        if certificates.is_empty() {
            return Err(OpenPgpError::Malformed("it has no public key of version 4"));
        }
        Ok(Self(certificates))
    }

    /// Returns the keys that may have made `signature`.
    pub(super) fn find_issuers<'k>(
        &'k self,
        signature: &'k PgpSignature,
    ) -> impl Iterator<Item = CertificateKey<'k>> {
        let issuers = &signature.facts.issuers;
        self.0
            .iter()
            .flat_map(Certificate::keys)
            .filter(move |key| issuers.is_empty() || issuers.contains(&key.key().key_id()))
    }
}

impl Certificate {
    fn new(primary: PgpKey) -> Self {
        let (direct, users, subkeys) = (Vec::new(), Vec::new(), Vec::new());
        Self { primary, direct, users, subkeys, part: CertificatePart::Primary }
    }

    fn add_packet(&mut self, tag: u8, body: &[u8]) -> Result<(), OpenPgpError> {
        match tag {
            packet::SIGNATURE => {
                let part = match self.part {
                    CertificatePart::Primary => Some(&mut self.direct),
                    CertificatePart::User(at) => self.users.get_mut(at).map(|(_, found)| found),
                    CertificatePart::Subkey(at) => self.subkeys.get_mut(at).map(|(_, found)| found),
                };
                let Some(signatures) = part else {
                    return Ok(());
                };
                let signature = match PgpSignature::read(body) {
                    Ok(signature) => signature,
                    // Others sign keys too, in any version and algorithm. But no revocation may be
                    // missed.
                    Err(_) if !is_revocation(body) => return Ok(()),
                    Err(error) => return Err(error),
                };
                if signature.may_be_by(&self.primary) || signature.kind == KEY_REVOCATION {
                    signatures.push(signature);
                }
                if signatures.len() > MAX_SELF_SIGNATURES {
                    return Err(OpenPgpError::Malformed("it has a key with too many signatures"));
                }
            }
            USER_ID | USER_ATTRIBUTE => {
                let first = if tag == USER_ID { 0xb4 } else { 0xd1 };
                let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
                let user = [&[first], &length[..], body].concat();
                self.part = CertificatePart::User(find_part(&mut self.users, user)?);
            }
            PUBLIC_SUBKEY => match PgpKey::read(body)? {
                Some(key) => {
                    self.part = CertificatePart::Subkey(find_part(&mut self.subkeys, key)?);
                }
                None => return Err(OpenPgpError::Malformed("it has a subkey of another version")),
            },
            _ => {}
        }
        Ok(())
    }

    fn keys(&self) -> impl Iterator<Item = CertificateKey<'_>> {
        let all = std::iter::once(None).chain(self.subkeys.iter().map(Some));
        all.map(|subkey| CertificateKey { certificate: self, subkey })
    }

    /// Returns the owner's newest statements about the primary key: the one about the key alone,
    /// and the one about a user ID. A user ID counts with the newest signature on it, unless that
    /// revokes it.
    fn statements(&self, now: u64) -> Vec<&PgpSignature> {
        let primary = &self.primary;
        let valid = |signature: &&PgpSignature, parts: &[&[u8]]| {
            signature.is_current(now) && signature.is_by(primary, parts)
        };
        let direct = self.direct.iter().filter(|signature| {
            signature.kind == DIRECT_KEY && valid(signature, &[&primary.hashed])
        });
        let of_users = self.users.iter().filter_map(|(user, signatures)| {
            let parts: [&[u8]; 2] = [&primary.hashed, user];
            let about_user = signatures.iter().filter(|signature| match signature.kind {
                CERTIFICATION_REVOCATION => !signature.is_understood() || valid(signature, &parts),
                kind => CERTIFICATIONS.contains(&kind) && valid(signature, &parts),
            });
            let newest = about_user.max_by_key(|signature| {
                (signature.created(), signature.kind == CERTIFICATION_REVOCATION)
            });
            newest.filter(|newest| newest.kind != CERTIFICATION_REVOCATION)
        });
        let newest = [
            direct.max_by_key(|signature| signature.created()),
            of_users.max_by_key(|signature| signature.created()),
        ];
        newest.into_iter().flatten().collect()
    }

    /// True if the owner has allowed the issuer of `revocation` to revoke the key. The keys of such
    /// people are not asked for: it counts without a proof.
    fn may_be_revoked_by(&self, revocation: &PgpSignature) -> bool {
        let by_owner = self.direct.iter().filter(|signature| {
            signature.kind == DIRECT_KEY && signature.is_by(&self.primary, &[&self.primary.hashed])
        });
        let mut revokers = by_owner.flat_map(|signature| &signature.facts.revokers);
        revokers.any(|revoker| {
            let id = revoker.last_chunk().copied().unwrap_or_default();
            revocation.facts.issuers.contains(&id)
        })
    }

    /// Fails if the primary key was not valid at `time`. Returns the owner's statements about it.
    fn check_primary(&self, time: u64, now: u64) -> Result<Vec<&PgpSignature>, KeyFlaw> {
        let primary = &self.primary;
        let all = self.users.iter().map(|(_, signatures)| signatures);
        let all = all.chain(self.subkeys.iter().map(|(_, signatures)| signatures));
        let all = std::iter::once(&self.direct).chain(all).flatten();
        let mut revocations = all.filter(|signature| signature.kind == KEY_REVOCATION);
        let is_revoked = revocations.any(|revocation| {
            if revocation.may_be_by(primary) {
                revokes(revocation, primary, &[&primary.hashed], time)
            } else {
                self.may_be_revoked_by(revocation)
            }
        });
        if is_revoked {
            return Err(KeyFlaw::Revoked);
        }
        // One may lack the expiration time that the other has.
        let statements = self.statements(now);
        statements.iter().try_for_each(|statement| check_life(primary, statement, time))?;
        if statements.is_empty() { Err(KeyFlaw::Unowned) } else { Ok(statements) }
    }
}

impl CertificateKey<'_> {
    /// The key itself.
    pub(super) fn key(&self) -> &PgpKey {
        match self.subkey {
            Some((key, _)) => key,
            None => &self.certificate.primary,
        }
    }

    /// Returns the fingerprint in upper-case hexadecimal, as GnuPG prints it.
    pub(super) fn fingerprint(&self) -> String {
        hex::encode_upper(&self.key().fingerprint)
    }

    /// Fails unless this key might sign at `time`, as its owner states at the time `now`.
    pub(super) fn check_signer(&self, time: u64, now: u64) -> Result<(), KeyFlaw> {
        let primary = &self.certificate.primary;
        let statements = self.certificate.check_primary(time, now)?;
        let Some((subkey, signatures)) = self.subkey else {
            // Old keys do not state their purposes.
            let mut flags = statements.iter().filter_map(|statement| statement.facts.key_flags);
            let may_sign = flags.all(|flags| flags & SIGN_FLAG != 0);
            return if may_sign { Ok(()) } else { Err(KeyFlaw::Purpose) };
        };
        let parts: [&[u8]; 2] = [&primary.hashed, &subkey.hashed];
        let by_owner = |kind: u8| {
            signatures
                .iter()
                .filter(move |found| found.kind == kind && found.is_by(primary, &parts))
        };
        let mut revocations = signatures.iter().filter(|found| found.kind == SUBKEY_REVOCATION);
        if revocations.any(|revocation| revokes(revocation, primary, &parts, time)) {
            return Err(KeyFlaw::Revoked);
        }
        let bindings = by_owner(SUBKEY_BINDING).filter(|binding| binding.is_current(now));
        let binding = bindings.max_by_key(|binding| binding.created()).ok_or(KeyFlaw::Unbound)?;
        if binding.facts.key_flags.is_none_or(|flags| flags & SIGN_FLAG == 0) {
            return Err(KeyFlaw::Purpose);
        }
        // Without this, the owner of another key could claim the subkey, and its signatures.
        let back = binding.embedded.as_deref();
        let is_confirmed = back.is_some_and(|back| {
            back.kind == PRIMARY_BINDING && back.is_current(now) && back.is_by(subkey, &parts)
        });
        if !is_confirmed {
            return Err(KeyFlaw::Unbound);
        }
        check_life(subkey, binding, time)
    }
}

/// Returns the index of `part`, which is added if it is new. A part that a file has twice may have
/// a revocation in one place only.
fn find_part<P: PartialEq>(
    parts: &mut Vec<(P, Vec<PgpSignature>)>,
    part: P,
) -> Result<usize, OpenPgpError> {
    if let Some(known) = parts.iter().position(|(known, _)| *known == part) {
        return Ok(known);
    }
    if parts.len() >= MAX_KEYS {
        return Err(OpenPgpError::Malformed("it has a key with too many parts"));
    }
    parts.push((part, Vec::new()));
    Ok(parts.len() - 1)
}

/// True if `revocation` makes signatures of `time` invalid. A thief of a key can make older
/// ones, so a time only counts if the owner states that it was not stolen. A revocation that cannot
/// be verified counts too.
fn revokes(revocation: &PgpSignature, primary: &PgpKey, parts: &[&[u8]], time: u64) -> bool {
    let counts = !revocation.is_understood() || revocation.is_by(primary, parts);
    counts && (!revocation.facts.is_soft || revocation.created() <= time)
}

/// True if `body` is a signature, of any version, that revokes a key.
fn is_revocation(body: &[u8]) -> bool {
    // The type is at another place in version 3 (RFC 9580 §5.2.2).
    let kind = if body.first() == Some(&3) { body.get(2) } else { body.get(1) };
    kind.is_some_and(|kind| [KEY_REVOCATION, SUBKEY_REVOCATION].contains(kind))
}

/// Fails if `key` did not exist yet at `time`, or had expired.
fn check_life(key: &PgpKey, statement: &PgpSignature, time: u64) -> Result<(), KeyFlaw> {
    let lifetime = u64::from(statement.facts.key_lifetime);
    if time < key.created {
        return Err(KeyFlaw::Younger);
    }
    if lifetime != 0 && time >= key.created.saturating_add(lifetime) {
        return Err(KeyFlaw::Expired);
    }
    Ok(())
}
