//! The record layer behind a handshake (RFC 8446 §5, RFC 5246 §6.2): records are opened where they lie, and sealed one at a time.

use std::ops::Range;

use rustls::client::ClientConnectionData;
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, Iv, MessageDecrypter, MessageEncrypter, OutboundChunks,
    OutboundPlainMessage,
};
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, Error, ExtractedSecrets, ProtocolVersion,
    SupportedCipherSuite,
};

/// Type, version and length in front of a record.
pub(super) const HEADER_BYTES: usize = 5;

/// Bytes of a record that are data, at most (RFC 8446 §5.1).
pub(super) const DATA_BYTES: usize = 1 << 14;

/// Bytes that encryption may add to a record at most (RFC 5246 §6.2.3; RFC 8446 §5.2 allows 256).
const OVERHEAD_BYTES: usize = 2048;

/// Bytes of a record, with its header, at most.
pub(super) const RECORD_BYTES: usize = HEADER_BYTES + DATA_BYTES + OVERHEAD_BYTES;

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

/// The error about a message that nobody may send now.
pub(super) fn unexpected(what: &str) -> Error {
    Error::General(format!("the peer sent {what}"))
}

/// What opens and what seals, from the secrets of a handshake.
pub(super) fn both(secrets: ExtractedSecrets, kernel: &Kernel) -> Result<(Opener, Sealer), Error> {
    let suite = kernel.suite();
    Ok((Opener::new(suite, secrets.rx)?, Sealer::new(suite, secrets.tx)?))
}

/// Opens records.
pub(super) struct Opener {
    decrypter: Box<dyn MessageDecrypter>,
    sequence: u64,
    /// TLS 1.3: the type is sealed with the content.
    hides_types: bool,
}

impl Opener {
    fn new(
        suite: SupportedCipherSuite,
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Result<Self, Error> {
        let (key, iv) = key_and_iv(secrets)?;
        let decrypter = match suite {
            SupportedCipherSuite::Tls13(suite) => suite.aead_alg.decrypter(key, iv),
            SupportedCipherSuite::Tls12(suite) => {
                let (fixed, _) = halves(&iv, suite.aead_alg.key_block_shape().fixed_iv_len);
                suite.aead_alg.decrypter(key, fixed)
            }
        };
        Ok(Self {
            decrypter,
            sequence,
            hides_types: matches!(suite, SupportedCipherSuite::Tls13(_)),
        })
    }

    /// Opens `record`, with its header, in its place. Returns its type, and the place of its content.
    pub(super) fn open(&mut self, record: &mut [u8]) -> Result<(ContentType, Range<usize>), Error> {
        let base = record.as_ptr().addr();
        let (header, payload) = record
            .split_at_mut_checked(HEADER_BYTES)
            .ok_or(Error::DecryptError)?;
        let kind = ContentType::from(header[0]);
        if self.hides_types && kind != ContentType::ApplicationData {
            return Err(unexpected("a record that is not sealed"));
        }
        let version = ProtocolVersion::from(u16::from_be_bytes([header[1], header[2]]));
        let message = InboundOpaqueMessage::new(kind, version, payload);
        let opened = self.decrypter.decrypt(message, self.sequence)?;
        self.sequence += 1;
        // It is a part of the record: behind an explicit nonce, and without padding and tag.
        let start = opened.payload.as_ptr().addr() - base;
        Ok((opened.typ, start..start + opened.payload.len()))
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
    encrypter: Box<dyn MessageEncrypter>,
    sequence: u64,
    /// Records that the key may seal (RFC 8446 §5.5).
    most: u64,
}

impl Sealer {
    fn new(
        suite: SupportedCipherSuite,
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Result<Self, Error> {
        let (key, iv) = key_and_iv(secrets)?;
        let (encrypter, most) = match suite {
            SupportedCipherSuite::Tls13(suite) => (
                suite.aead_alg.encrypter(key, iv),
                suite.common.confidentiality_limit,
            ),
            SupportedCipherSuite::Tls12(suite) => {
                let (fixed, explicit) = halves(&iv, suite.aead_alg.key_block_shape().fixed_iv_len);
                (
                    suite.aead_alg.encrypter(key, fixed, explicit),
                    suite.common.confidentiality_limit,
                )
            }
        };
        let mut sealer = Self {
            encrypter,
            sequence: 0,
            most: most.min(MAX_RECORDS),
        };
        // aws-lc takes the first nonce that it sees for that of record 0, and refuses what does not rise from there
        // (`EVP_aead_aes_128_gcm_tls13`). This record is thrown away: rustls has sent the one that has its nonce.
        if sequence > 0 {
            sealer.seal(ContentType::ApplicationData, OutboundChunks::new_empty())?;
            sealer.sequence = sequence;
        }
        Ok(sealer)
    }

    /// True if the key has only records left for what ends its use: a key update, and an alert.
    pub(super) fn is_worn(&self) -> bool {
        self.sequence + 2 >= self.most
    }

    /// A record of this type, with its header.
    pub(super) fn seal(&mut self, kind: ContentType, payload: OutboundChunks<'_>) -> Result<Vec<u8>, Error> {
        if self.sequence >= self.most {
            return Err(Error::EncryptError);
        }
        let message = OutboundPlainMessage {
            typ: kind,
            // What TLS 1.3 calls itself in records (RFC 8446 §5.1).
            version: ProtocolVersion::TLSv1_2,
            payload,
        };
        let sealed = self.encrypter.encrypt(message, self.sequence)?;
        self.sequence += 1;
        Ok(sealed.encode())
    }

    /// A record with an alert (RFC 8446 §6).
    pub(super) fn alert(&mut self, level: u8, alert: AlertDescription) -> Result<Vec<u8>, Error> {
        let payload = [level, u8::from(alert)];
        self.seal(ContentType::Alert, OutboundChunks::Single(&payload))
    }

    /// Uses the next key, and makes the record that tells so.
    pub(super) fn update(&mut self, kernel: &mut Kernel) -> Result<Vec<u8>, Error> {
        let record = self.seal(ContentType::Handshake, OutboundChunks::Single(&KEY_UPDATE))?;
        let secrets = match kernel {
            Kernel::Server(kernel) => kernel.update_tx_secret()?,
            Kernel::Client(kernel) => kernel.update_tx_secret()?,
        };
        *self = Self::new(kernel.suite(), secrets)?;
        Ok(record)
    }
}

/// A message that the sender's next records are sealed with the next key; the receiver's need not (RFC 8446 §4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

fn key_and_iv(secrets: ConnectionTrafficSecrets) -> Result<(AeadKey, Iv), Error> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => Ok((key, iv)),
        _ => Err(Error::General("a cipher that is not known".into())),
    }
}

/// The part of an IV that is fixed, and the one that TLS 1.2 begins its explicit nonces with (RFC 5288 §3).
fn halves(iv: &Iv, fixed_bytes: usize) -> (&[u8], &[u8]) {
    let iv = iv.as_ref();
    iv.split_at(fixed_bytes.min(iv.len()))
}
