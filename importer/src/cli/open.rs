//! Opens the source that a command line names.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use datapath::error::errno_text;
use datapath::options::Payload;
use datapath::source::Source;
use https::tls::{self, Roots};
use program::env::{ProcessEnv, Strings};
use program::paths::Paths;
use sources::Credentials;
use sources::file::FileSource;
use sources::http::{Header, parse_header};
use sources::objects::{Addressing, ObjectOptions};
use sources::policy::{Granted, Policy};
use sources::proxy::ProxyConfig;
use sources::registry::RegistryOptions;
use sources::vddk::{Installation, VddkParticulars};
use sources::{Checkpoints, Network, Particulars, Patience, Place};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::args::SourceArgs;
use super::failure::CommandFailed;
use super::openstack;

/// Parts of the process that a job needs.
pub(super) struct Context {
    /// The runtime that moves bytes from the network.
    pub(super) handle: Handle,
    /// Ends every wait.
    pub(super) stop: CancellationToken,
}

impl Context {
    /// Opens what is on this machine: a path, or `-`.
    pub(super) fn open_local(&self, path: &Path) -> Result<Box<dyn Source>, CommandFailed> {
        Ok(Box::new(FileSource::open(path, self.stop.clone())?))
    }

    /// Opens what `arguments` name. `is_checked` says that a checksum of the whole object was given and will be verified.
    pub(super) fn open(
        &self,
        arguments: &SourceArgs,
        is_checked: bool,
    ) -> Result<Box<dyn Source>, CommandFailed> {
        let credentials = credentials(arguments)?;
        let particulars = Particulars {
            access: openstack::access(
                &arguments.source,
                credentials.as_ref(),
                arguments.ambient_identity,
            )?,
            ..particulars(arguments)
        };
        let mut place = Place::parse(&arguments.source, particulars).map_err(usage)?;
        if let Place::File(path) = &place {
            return self.open_local(path);
        }
        if matches!(place, Place::Vddk(_)) && arguments.content.payload() != Payload::default() {
            let what = "--format and --ova are for images: a VMware disk is what its guest has written";
            return Err(CommandFailed::Usage(what.to_owned()));
        }
        let network = self.network(arguments, credentials, is_checked)?;
        if let Place::Http { headers, .. } = &mut place {
            *headers = self::headers(arguments)?;
        }
        Ok(sources::open(&place, &Arc::new(network))?.source)
    }

    fn network(
        &self,
        arguments: &SourceArgs,
        credentials: Option<Credentials>,
        is_checked: bool,
    ) -> Result<Network, CommandFailed> {
        let tls = if arguments.insecure {
            tls::insecure_client_config()
        } else {
            let mut roots = Roots::system();
            if let Some(dir) = &arguments.ca_dir {
                roots.add_dir(dir).map_err(usage)?;
            }
            tls::client_config(roots)
        };
        let tls = tls.map_err(|error| CommandFailed::Internal(error.to_string()))?;
        let granted = Granted {
            ambient_identity: arguments.ambient_identity,
            cleartext_secrets: arguments.cleartext_secrets,
            token_services: arguments.token_services.clone(),
        };
        Ok(Network {
            credentials,
            insecure: arguments.insecure,
            proxy: ProxyConfig::from_env(|name| ProcessEnv.get(name)).map_err(usage)?,
            connections: arguments
                .connections
                .and_then(|number| NonZeroUsize::new(number.into())),
            patience: Patience {
                no_progress_limit: arguments.no_progress_timeout.0,
                retries: arguments.retries,
                ..Patience::default()
            },
            // Without verified certificates no host is a cloud's own, so none gets an identity that was found on this machine, unless
            // --ambient-identity says so.
            policy: Policy::command_line(&ProcessEnv, !arguments.insecure, &granted),
            is_checked,
            ..Network::new(self.handle.clone(), self.stop.clone(), Arc::new(tls))
        })
    }
}

/// Particulars for each kind of source besides the address.
fn particulars(arguments: &SourceArgs) -> Particulars {
    Particulars {
        objects: ObjectOptions {
            anonymous: arguments.anonymous,
            addressing: Addressing::Bucket,
            region: arguments.region.clone(),
            key_file: arguments.key_file.clone(),
        },
        registry: RegistryOptions {
            architecture: arguments.architecture.clone(),
        },
        checkpoints: Checkpoints {
            current: arguments.checkpoint.clone(),
            previous: arguments.previous_checkpoint.clone(),
        },
        vddk: VddkParticulars {
            thumbprint: arguments.thumbprint.clone(),
            has_certificates: arguments.ca_dir.is_some(),
            installation: installation(arguments),
        },
        ..Particulars::default()
    }
}

/// Places of nbdkit and its library: those of a pod, which an image of ours has as well.
fn installation(arguments: &SourceArgs) -> Installation {
    let paths = Paths::from_env(&ProcessEnv);
    let of_pod = Installation::of_pod(|path| paths.at(path));
    match &arguments.vddk_library {
        Some(library) => Installation {
            library: library.clone(),
            ..of_pod
        },
        None => of_pod,
    }
}

/// The failure for what can never work: a mistake of the command line, not of the source.
fn usage(error: impl std::fmt::Display) -> CommandFailed {
    CommandFailed::Usage(error.to_string())
}

fn credentials(arguments: &SourceArgs) -> Result<Option<Credentials>, CommandFailed> {
    let (Some(user), Some(file)) = (&arguments.user, &arguments.password_file) else {
        return Ok(None);
    };
    let password = read_line(file)?;
    match Credentials::new(user, &password) {
        Some(credentials) => Ok(Some(credentials)),
        None => Err(CommandFailed::Usage(
            "neither the user name nor the password may be empty".to_owned(),
        )),
    }
}

fn headers(arguments: &SourceArgs) -> Result<Vec<Header>, CommandFailed> {
    let plain = arguments.headers.iter().map(|line| header(line, false));
    let secret = arguments
        .secret_header_files
        .iter()
        .map(|file| header(&read_line(file)?, true));
    plain.chain(secret).collect()
}

fn header(line: &str, secret: bool) -> Result<Header, CommandFailed> {
    match parse_header(line, secret) {
        Ok(Some(header)) => Ok(header),
        Ok(None) => Err(CommandFailed::Usage(
            "an extra header must look like 'Name: value'".to_owned(),
        )),
        Err(error) => Err(usage(error)),
    }
}

/// The content of a small file that holds a secret, without the line break at its end.
fn read_line(file: &Path) -> Result<String, CommandFailed> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(error) => Err(CommandFailed::Usage(format!(
            "cannot read {}: {}",
            file.display(),
            errno_text(&error)
        ))),
    }
}
