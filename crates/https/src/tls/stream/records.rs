//! The record layer behind a handshake (RFC 8446 §5, RFC 5246 §6.2).

use std::io::IoSlice;
use std::ops::Range;

use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, Error, ExtractedSecrets, SupportedCipherSuite,
};

use super::cipher::{Cipher, DATA_BYTES, HEADER_BYTES, OVERHEAD_BYTES, Sealed, unexpected};

/// Bytes of a record that we seal, with its header, at most.
pub(super) const SEALED_BYTES: usize = HEADER_BYTES + DATA_BYTES + OVERHEAD_BYTES;

/// Bytes of a record that came, with its header, at most: encryption may add so many (RFC 5246 §6.2.3; RFC 8446 §5.2 allows 256).
pub(super) const RECORD_BYTES: usize = HEADER_BYTES + DATA_BYTES + 2048;

/// Records that one key may seal when its cipher knows no bound.
const MAX_RECORDS: u64 = 1 << 60;

/// The connection's secrets beyond those in use: what is asked for the next ones.
pub(super) enum Kernel {
    Server(KernelConnection<ServerConnectionData>),
    Client(KernelConnection<ClientConnectionData>),
}

impl Kernel {
    fn suite(&self) -> SupportedCipherSuite {
        match self {
            Self::Server(kernel) => kernel.negotiated_cipher_suite(),
            Self::Client(kernel) => kernel.negotiated_cipher_suite(),
        }
    }

    /// True from TLS 1.3 on.
    pub(super) fn is_new(&self) -> bool {
        matches!(self.suite(), SupportedCipherSuite::Tls13(_))
    }

    /// Takes a ticket for a later session. Servers get none.
    pub(super) fn take_ticket(&mut self, ticket: &[u8]) -> Result<(), Error> {
        match self {
            Self::Server(_) => Err(unexpected("a session ticket of a client")),
            Self::Client(kernel) => kernel.handle_new_session_ticket(ticket),
        }
    }
}

/// What opens and what seals, from the secrets of a handshake.
pub(super) fn both(secrets: ExtractedSecrets, kernel: &Kernel) -> Result<(Opener, Sealer), Error> {
    let suite = kernel.suite();
    Ok((Opener::new(suite, secrets.rx)?, Sealer::new(suite, secrets.tx)?))
}

/// Opens records.
pub(super) struct Opener {
    cipher: Cipher,
    sequence: u64,
}

impl Opener {
    fn new(
        suite: SupportedCipherSuite,
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Result<Self, Error> {
        let cipher = Cipher::new(suite, &secrets)?;
        Ok(Self { cipher, sequence })
    }

    /// Bytes that [`Self::open_into`] needs for the content of `record`.
    pub(super) fn needs(&self, record: &[u8]) -> usize {
        self.cipher.body(record).len()
    }

    /// Opens `record`, with its header, in its place. Returns its type, and the place of its content.
    pub(super) fn open(&mut self, record: &mut [u8]) -> Result<(ContentType, Range<usize>), Error> {
        let body = self.cipher.body(record);
        self.cipher.open(self.sequence, record)?;
        self.sequence += 1;
        let (kind, length) = self.content(record[0], &record[body.clone()])?;
        Ok((kind, body.start..body.start + length))
    }

    /// Opens `record`, with its header, and writes to the beginning of `to`, which has the bytes that it [`needs`](Self::needs).
    /// Returns its type, and the length of its content.
    pub(super) fn open_into(&mut self, record: &[u8], to: &mut [u8]) -> Result<(ContentType, usize), Error> {
        self.cipher.open_into(self.sequence, record, to)?;
        self.sequence += 1;
        self.content(record[0], to)
    }

    /// The type of what was opened, and the length of its content. In TLS 1.3 the type is the last byte that is not zero (RFC 8446 §5.2).
    fn content(&self, kind: u8, opened: &[u8]) -> Result<(ContentType, usize), Error> {
        let (kind, length) = if self.cipher.hides_types() {
            let last = opened.iter().rposition(|&byte| byte != 0);
            let last = last.ok_or_else(|| unexpected("a record without a type"))?;
            (opened[last], last)
        } else {
            (kind, opened.len())
        };
        if length > DATA_BYTES {
            return Err(Error::PeerSentOversizedRecord);
        }
        Ok((ContentType::from(kind), length))
    }

    /// Uses the next key, as the peer does from now on.
    pub(super) fn update(&mut self, kernel: &mut Kernel) -> Result<(), Error> {
        let secrets = match kernel {
            Kernel::Server(kernel) => kernel.update_rx_secret()?,
            Kernel::Client(kernel) => kernel.update_rx_secret()?,
        };
        *self = Self::new(kernel.suite(), secrets)?;
        Ok(())
    }
}

/// Seals records.
pub(super) struct Sealer {
    cipher: Cipher,
    sequence: u64,
    /// Records that the key may seal (RFC 8446 §5.5).
    most: u64,
}

impl Sealer {
    fn new(
        suite: SupportedCipherSuite,
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Result<Self, Error> {
        let most = match suite {
            SupportedCipherSuite::Tls13(suite) => suite.common.confidentiality_limit,
            SupportedCipherSuite::Tls12(suite) => suite.common.confidentiality_limit,
        };
        Ok(Self {
            cipher: Cipher::new(suite, &secrets)?,
            sequence,
            most: most.min(MAX_RECORDS),
        })
    }

    /// True if the key has only records left for what ends its use: a key update, and an alert.
    pub(super) fn is_worn(&self) -> bool {
        self.sequence + 2 >= self.most
    }

    /// Seals the beginning of `pieces` as a record of this type into `out`; [`SEALED_BYTES`] are always enough.
    pub(super) fn seal(
        &mut self,
        kind: ContentType,
        pieces: &[IoSlice<'_>],
        out: &mut [u8],
    ) -> Result<Sealed, Error> {
        if self.sequence >= self.most {
            return Err(Error::EncryptError);
        }
        let sequence = self.sequence;
        // Not again, whatever comes of it: two records of one number would betray their key (RFC 8446 §5.3).
        self.sequence += 1;
        self.cipher.seal(sequence, kind.into(), pieces, out)
    }

    /// Seals an alert (RFC 8446 §6).
    pub(super) fn alert(
        &mut self,
        level: u8,
        alert: AlertDescription,
        out: &mut [u8],
    ) -> Result<Sealed, Error> {
        let payload = [level, u8::from(alert)];
        self.seal(ContentType::Alert, &[IoSlice::new(&payload)], out)
    }

    /// Seals the message that tells so, and uses the next key.
    pub(super) fn update(&mut self, kernel: &mut Kernel, out: &mut [u8]) -> Result<Sealed, Error> {
        let sealed = self.seal(ContentType::Handshake, &[IoSlice::new(&KEY_UPDATE)], out)?;
        let secrets = match kernel {
            Kernel::Server(kernel) => kernel.update_tx_secret()?,
            Kernel::Client(kernel) => kernel.update_tx_secret()?,
        };
        *self = Self::new(kernel.suite(), secrets)?;
        Ok(sealed)
    }
}

/// A message that the sender's next records are sealed with the next key; the receiver's need not (RFC 8446 §4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

#[cfg(test)]
mod tests {
    use rustls::crypto::cipher::{AeadKey, Iv};

    use super::*;

    #[test]
    fn the_type_is_behind_the_content_and_padding_is_not_data() {
        let provider = program::crypto::provider();
        let suites = &provider.cipher_suites;
        let opener = |is_new: bool| {
            let suite = suites
                .iter()
                .find(|suite| suite.tls13().is_some() == is_new)
                .unwrap();
            let (key, iv) = (AeadKey::from([7; 32]), Iv::from([9; 12]));
            Opener::new(*suite, (0, ConnectionTrafficSecrets::Aes256Gcm { key, iv })).unwrap()
        };
        let full = vec![0; DATA_BYTES];
        for (inner, expected) in [
            (b"abc\x17".to_vec(), Ok((ContentType::ApplicationData, 3))),
            (b"a\0\x16\0\0".to_vec(), Ok((ContentType::Handshake, 2))),
            (
                [&full[..], &[23]].concat(),
                Ok((ContentType::ApplicationData, DATA_BYTES)),
            ),
            (
                [&full[..], &[0, 23]].concat(),
                Err(Error::PeerSentOversizedRecord),
            ),
            (b"\0\0".to_vec(), Err(unexpected("a record without a type"))),
            (Vec::new(), Err(unexpected("a record without a type"))),
        ] {
            assert_eq!(opener(true).content(23, &inner), expected);
        }
        assert_eq!(opener(false).content(21, &[0, 0]), Ok((ContentType::Alert, 2)));
        assert_eq!(
            opener(false).content(23, &vec![0; DATA_BYTES + 1]),
            Err(Error::PeerSentOversizedRecord)
        );
    }
}
