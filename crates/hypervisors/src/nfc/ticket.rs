//! Tickets of vSphere. Each one opens one connection to the host that has the disk.

use std::sync::{Arc, OnceLock};

use fetch::Network;
use fetch::messages::plain_line;
use fetch::retry::{AttemptError, with_lookup_limit};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use stream::error::{SourceError, SourceErrorKind};
use tokio::sync::Mutex;
use url::Url;

use super::NfcEncoding;
use crate::pin::Thumbprint;
use crate::vddk::answer::{ManagedObjectReference, VsphereFault};
use crate::vddk::soap::{LOGOUT_LIMIT, VsphereSession};
use crate::vddk::{VddkOptions, VddkSourceOptions, VmwareTransport};
use crate::xml::XmlElement;

/// The port of a host, if the ticket names none.
const DEFAULT_PORT: u16 = 902;

/// Longest name of a service, and longest secret, in bytes; real secrets have 36.
const MAX_WORD_BYTES: usize = 256;

/// End of the names of services inside TLS.
pub(super) const TLS_SUFFIX: &str = "ssl";

/// Advice for when vSphere or a host refuses to give a disk away.
pub(super) const PRIVILEGES: &str = "the user needs the privileges VirtualMachine.Provisioning.GetVmFiles (on vCenter itself) and \
     VirtualMachine.Provisioning.DiskRandomRead";

/// Requests tickets for the disks of one machine.
pub struct TicketDesk {
    pub(super) endpoint: Url,
    pub(super) network: Arc<Network>,
    machine: ManagedObjectReference,
    /// True if certificates are verified.
    pub(super) is_verified: bool,
    pub(super) encoding: NfcEncoding,
    /// The session with vSphere. It may expire while the disk is read, because only its own calls
    /// renew it.
    session: Mutex<Option<VsphereSession>>,
    /// The host that the first ticket named.
    host: OnceLock<String>,
}

/// A desk that gives tickets. Dropping it logs out, and blocks, so it must not be dropped inside an
/// asynchronous task.
pub(crate) struct OpenDesk(pub(crate) Arc<TicketDesk>);

impl Drop for OpenDesk {
    fn drop(&mut self) {
        let TicketDesk { network, session, .. } = &*self.0;
        network.handle.block_on(async {
            // Another task may be waiting for vSphere.
            let kept = tokio::time::timeout(LOGOUT_LIMIT, session.lock()).await;
            if let Some(mut session) = kept.ok().and_then(|mut kept| kept.take()) {
                session.close().await;
            }
        });
    }
}

/// A permission for one connection. It contains a secret, so it is never printed.
pub(super) struct NfcTicket {
    pub(super) host: String,
    pub(super) port: u16,
    /// The thumbprint of the host's certificate; without one, only an authority will do.
    pub(super) thumbprint: Option<Thumbprint>,
    /// The service, which ends with `ssl` if it is inside TLS.
    pub(super) service: String,
    pub(super) secret: String,
}

impl TicketDesk {
    /// Creates the desk for `machine` of the vSphere of `options`.
    pub(crate) fn open(
        options: &VddkOptions,
        machine: &ManagedObjectReference,
        network: &Arc<Network>,
    ) -> OpenDesk {
        let VddkSourceOptions { has_certificates, thumbprint, transport, .. } = &options.access;
        OpenDesk(Arc::new(Self {
            endpoint: options.endpoint.clone(),
            network: Arc::clone(network),
            machine: machine.clone(),
            // A host of which vSphere names no thumbprint.
            is_verified: !network.insecure && (*has_certificates || thumbprint.is_some()),
            encoding: match transport {
                VmwareTransport::Nfc(encoding) => *encoding,
                _ => NfcEncoding::default(),
            },
            session: Mutex::new(None),
            host: OnceLock::new(),
        }))
    }

    /// Returns a new ticket, with which a connection must be opened immediately.
    pub(super) async fn issue(&self) -> Result<NfcTicket, AttemptError> {
        let mut kept = self.session.lock().await;
        let issuing = async {
            let mut session = match kept.take() {
                Some(session) => session,
                None => VsphereSession::open(&self.endpoint, &self.network).await?,
            };
            let ticket = self.request_ticket(&mut session).await;
            // After a call without answer, the next attempt opens a new session.
            if ticket.as_ref().err().is_none_or(|error| VsphereFault::of(error).is_some()) {
                *kept = Some(session);
            }
            ticket.map_err(explain_refusal)
        };
        with_lookup_limit(issuing).await.map_err(|error| match error.kind() {
            SourceErrorKind::Invalid | SourceErrorKind::Stopped => AttemptError::Final(error),
            _ => AttemptError::from_transient(error),
        })
    }

    /// Returns the host that has the disk, once a ticket has named it.
    pub(crate) fn host(&self) -> &str {
        self.host.get().map(String::as_str).unwrap_or_default()
    }

    async fn request_ticket(&self, session: &mut VsphereSession) -> Result<NfcTicket, SourceError> {
        let service = find_service(session).await?;
        let machine = self.machine.to_xml("vm");
        let ticket = session.call_method(&service, "NfcGetVmFiles", &machine).await?;
        // A host that was asked directly does not name itself.
        let server = self.endpoint.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let ticket = NfcTicket::from_xml(&ticket, server, self.encoding)?;
        self.host.get_or_init(|| ticket.host.clone());
        Ok(ticket)
    }
}

/// Finds the service of vSphere that gives tickets.
async fn find_service(session: &mut VsphereSession) -> Result<ManagedObjectReference, SourceError> {
    let root = ManagedObjectReference::new("ServiceInstance", "ServiceInstance");
    let content = session.call_method(&root, "RetrieveInternalContent", "").await?;
    let service = content.text_of("nfcService").ok_or_else(|| {
        let message = "this vSphere does not name a service for its disks: use VMware's library (--transport vddk)";
        SourceError::new(SourceErrorKind::Invalid, message)
    })?;
    ManagedObjectReference::from_name("NfcService", service)
}

/// Returns the version of the library of `host`: 11 of ESXi 8, 7 of ESXi 7.0. `None` if it is too
/// old to tell.
pub(crate) async fn library_version(
    session: &mut VsphereSession,
    host: Option<&ManagedObjectReference>,
) -> Result<Option<u32>, SourceError> {
    let service = find_service(session).await?;
    let host = host.map(|host| host.to_xml("hostForAccess")).unwrap_or_default();
    match session.call_method(&service, "NfcGetServerNfcLibVersion", &host).await {
        Ok(answer) => Ok(answer.own_text().and_then(|version| version.parse().ok())),
        Err(error) => match VsphereFault::of(&error) {
            Some(fault) if fault.kind == "InvalidRequest" => Ok(None),
            _ => Err(explain_refusal(error)),
        },
    }
}

impl NfcTicket {
    /// Parses a `HostServiceTicket`. It is for the host `server` if it names none.
    fn from_xml(
        ticket: &XmlElement,
        server: &str,
        encoding: NfcEncoding,
    ) -> Result<Self, SourceError> {
        let wrong = |what: &str| unusable_error("a ticket", what);
        let word = |name: &str| {
            let text = ticket.text_of(name).map(str::trim).filter(|text| {
                // Each is part of a line that is sent to the host.
                !text.is_empty()
                    && text.len() <= MAX_WORD_BYTES
                    && text.bytes().all(|byte| byte.is_ascii_graphic())
            });
            text.map(str::to_owned).ok_or_else(|| wrong(name))
        };
        let thumbprint = named_thumbprint(ticket)?;
        let port = match text_of(ticket, "port") {
            Some(port) => {
                port.parse().ok().filter(|port| *port != 0).ok_or_else(|| wrong("port"))?
            }
            None => DEFAULT_PORT,
        };
        let service = word("service")?;
        let service = service.strip_suffix(TLS_SUFFIX).unwrap_or(&service);
        let suffix = if encoding == NfcEncoding::Clear { "" } else { TLS_SUFFIX };
        let service = format!("{service}{suffix}");
        let host = text_of(ticket, "host").map(plain_line).unwrap_or_else(|| server.to_owned());
        Ok(Self { host, port, thumbprint, service, secret: word("sessionId")? })
    }
}

/// Returns the thumbprint of the host's certificate, if `answer` names one.
pub(crate) fn named_thumbprint(answer: &XmlElement) -> Result<Option<Thumbprint>, SourceError> {
    match (text_of(answer, "sslThumbprint"), text_of(answer, "sslCertificate")) {
        (Some(thumbprint), _) => Thumbprint::parse(thumbprint).map(Some),
        // Not confirmed: what the field of vSphere 9 contains.
        (None, Some(pem)) => {
            let certificate = CertificateDer::from_pem_slice(pem.as_bytes())
                .map_err(|_| unusable_error("a host", "sslCertificate"))?;
            Thumbprint::of_certificate(&certificate).map(Some)
        }
        (None, None) => Ok(None),
    }
}

pub(crate) fn unusable_error(what: &str, part: &str) -> SourceError {
    let message = format!("vSphere returns {what} that has no usable {part}");
    SourceError::new(SourceErrorKind::Invalid, message)
}

/// Returns the text of a child that is not empty.
fn text_of<'a>(element: &'a XmlElement, name: &str) -> Option<&'a str> {
    element.text_of(name).map(str::trim).filter(|text| !text.is_empty())
}

/// Faults that a later call may not have, because a host is away or the machine moves.
const PASSING: [&str; 5] =
    ["HostNotConnected", "HostNotReachable", "HostCommunication", "TaskInProgress", "InvalidState"];

fn explain_refusal(error: SourceError) -> SourceError {
    let Some(fault) = VsphereFault::of(&error) else { return error };
    let kind = match PASSING.contains(&fault.kind.as_str()) {
        true => SourceErrorKind::Io,
        false => SourceErrorKind::Invalid,
    };
    SourceError::new(kind, format!("{fault}: {PRIVILEGES}")).with_cause(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA1: &str = "<sslThumbprint>A9:99:3E:36:47:06:81:6A:BA:3E:25:71:78:50:C2:6C:9C:D0:D8:9D</sslThumbprint>";

    fn parse(fields: &str) -> Result<NfcTicket, SourceError> {
        let xml = format!("<returnval>{fields}</returnval>");
        parse_for(&xml, NfcEncoding::default())
    }

    fn parse_for(xml: &str, encoding: NfcEncoding) -> Result<NfcTicket, SourceError> {
        NfcTicket::from_xml(&XmlElement::parse(xml.as_bytes()).unwrap(), "vc", encoding)
    }

    #[test]
    fn tickets_name_host_and_service_or_leave_them_out() {
        let ticket = parse(&format!(
            "<host>esx1</host><port>903</port>{SHA1}<service>vpxa-nfc</service><serviceVersion>1.1</serviceVersion>\
             <sessionId>52-secret</sessionId>"
        ))
        .unwrap();
        assert_eq!((&*ticket.host, ticket.port, &*ticket.service), ("esx1", 903, "vpxa-nfcssl"));
        assert_eq!(ticket.secret, "52-secret");
        assert!(ticket.thumbprint.is_some_and(|thumbprint| thumbprint.is_of(b"abc")));
        let direct = parse("<service>nfcssl</service><sessionId>x</sessionId>").unwrap();
        assert_eq!((&*direct.host, direct.port, &*direct.service), ("vc", 902, "nfcssl"));
        assert!(direct.thumbprint.is_none());
        let xml = "<returnval><service>nfcssl</service><sessionId>x</sessionId></returnval>";
        assert_eq!(parse_for(xml, NfcEncoding::Clear).unwrap().service, "nfc");
    }

    #[test]
    fn words_that_would_be_other_lines_are_refused() {
        for fields in [
            "<service>nfc</service>",
            "<sessionId>x</sessionId>",
            "<service>nfc</service><sessionId>x&#10;PROXY y</sessionId>",
            "<service>nfc y</service><sessionId>x</sessionId>",
            "<service>nfc</service><sessionId>x</sessionId><port>0</port>",
            "<service>nfc</service><sessionId>x</sessionId><port>70000</port>",
            "<service>nfc</service><sessionId>x</sessionId><sslThumbprint>A9:99</sslThumbprint>",
            "<service>nfc</service><sessionId>x</sessionId><sslCertificate>no</sslCertificate>",
        ] {
            assert!(parse(fields).is_err(), "{fields}");
        }
    }
}
