//! Opens the source that a command line names.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use daemon::env::{ProcessEnv, Strings};
use daemon::tls::{self, Roots};
use datapath::error::{SourceError, errno_text};
use datapath::source::Source;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::args::SourceArgs;
use super::failure::CommandFailed as Failure;
use sources::Location;
use sources::access::{Access, STORE_CONNECTIONS};
use sources::file::FileSource;
use sources::gcs::{self, GcsOptions};
use sources::http::{Credentials, Header, HttpConfig, HttpSource, parse_header};
use sources::imageio::{Checkpoints, ImageIoSource, disk_of_engine};
use sources::nbd::NbdSource;
use sources::policy::{Granted, Policy};
use sources::proxy::ProxyConfig;
use sources::registry::{RegistryOptions, RegistrySource};
use sources::s3::{self, Addressing, S3Options};

/// What a job needs from the process around it.
pub(super) struct Context {
    /// The runtime that moves bytes from the network.
    pub(super) handle: Handle,
    /// Ends every wait.
    pub(super) stop: CancellationToken,
}

impl Context {
    /// Opens what is on this machine: a path, or `-`.
    pub(super) fn open_local(&self, path: &Path) -> Result<Box<dyn Source>, Failure> {
        if path.as_os_str() == "-" {
            boxed(FileSource::stdin(self.stop.clone()))
        } else {
            boxed(FileSource::open(path, self.stop.clone()))
        }
    }

    /// Opens what `arguments` name. `is_checked` says that a checksum of the whole object was given and will be verified.
    pub(super) fn open(&self, arguments: &SourceArgs, is_checked: bool) -> Result<Box<dyn Source>, Failure> {
        let (handle, stop) = (self.handle.clone(), self.stop.clone());
        let location = Location::parse(&arguments.source).map_err(usage)?;
        let usual = match location {
            Location::S3(_) | Location::Gcs(_) => STORE_CONNECTIONS,
            _ => NonZeroUsize::MIN,
        };
        let access = || access(arguments, usual, is_checked);
        match location {
            Location::Stdin => boxed(FileSource::stdin(stop)),
            Location::File(path) => boxed(FileSource::open(&path, stop)),
            Location::Http(url) => {
                let config = http_config(&url, arguments, &access()?)?;
                boxed(HttpSource::open(config, handle, stop))
            }
            Location::S3(url) => {
                let options = S3Options {
                    region: arguments.region.clone(),
                    anonymous: arguments.anonymous,
                    addressing: Addressing::Bucket,
                };
                boxed(s3::open(&url, &access()?, options, handle, stop))
            }
            Location::Gcs(url) => {
                let options = GcsOptions {
                    key_file: arguments.key_file.clone(),
                    anonymous: arguments.anonymous,
                };
                boxed(gcs::open(&url, &access()?, options, handle, stop))
            }
            Location::Registry(reference) => {
                let options = RegistryOptions {
                    architecture: arguments.architecture.clone(),
                };
                boxed(RegistrySource::open(
                    &reference,
                    &access()?,
                    options,
                    handle,
                    stop,
                ))
            }
            Location::Nbd(uri) => boxed(NbdSource::open(&uri, &access()?, handle, stop)),
            Location::Ovirt(address) => {
                let (api, disk) = disk_of_engine(&address).map_err(usage)?;
                let checkpoints = Checkpoints {
                    current: arguments.checkpoint.clone(),
                    previous: arguments.previous_checkpoint.clone(),
                };
                let access = access()?;
                boxed(ImageIoSource::open(
                    &api,
                    &disk,
                    &checkpoints,
                    &access,
                    handle,
                    stop,
                ))
            }
        }
    }
}

fn boxed(source: Result<impl Source + 'static, SourceError>) -> Result<Box<dyn Source>, Failure> {
    Ok(Box::new(source?))
}

fn http_config(url: &str, arguments: &SourceArgs, access: &Access) -> Result<HttpConfig, Failure> {
    let url = HttpConfig::new(url, Arc::clone(&access.tls)).map_err(usage)?.url;
    Ok(HttpConfig {
        credentials: access.credentials.clone(),
        headers: headers(arguments)?,
        ..access.http(url)
    })
}

/// What can never work is a mistake of the command line, not of the source.
fn usage(error: impl std::fmt::Display) -> Failure {
    Failure::Usage(error.to_string())
}

/// `usual` connections, if the user asks for no other number.
fn access(arguments: &SourceArgs, usual: NonZeroUsize, is_checked: bool) -> Result<Access, Failure> {
    let tls = if arguments.insecure {
        tls::insecure_client_config()
    } else {
        let mut roots = Roots::system();
        if let Some(dir) = &arguments.ca_dir {
            roots.add_dir(dir).map_err(usage)?;
        }
        tls::client_config(roots)
    };
    let tls = tls.map_err(|error| Failure::Internal(error.to_string()))?;
    let granted = Granted {
        ambient_identity: arguments.ambient_identity,
        cleartext_secrets: arguments.cleartext_secrets,
        token_services: arguments.token_services.clone(),
    };
    Ok(Access {
        credentials: credentials(arguments)?,
        tls: Arc::new(tls),
        insecure: arguments.insecure,
        proxy: ProxyConfig::from_env(|name| ProcessEnv.get(name)).map_err(usage)?,
        connections: arguments
            .connections
            .and_then(|number| NonZeroUsize::new(number.into()))
            .unwrap_or(usual),
        is_checked,
        no_progress_limit: arguments.no_progress_timeout,
        retries: arguments.retries,
        policy: Policy::command_line(&ProcessEnv, !arguments.insecure, &granted),
    })
}

fn credentials(arguments: &SourceArgs) -> Result<Option<Credentials>, Failure> {
    let (Some(user), Some(file)) = (&arguments.user, &arguments.password_file) else {
        return Ok(None);
    };
    let password = read_line(file)?;
    match Credentials::new(user, &password) {
        Some(credentials) => Ok(Some(credentials)),
        None => Err(Failure::Usage(
            "neither the user name nor the password may be empty".to_owned(),
        )),
    }
}

fn headers(arguments: &SourceArgs) -> Result<Vec<Header>, Failure> {
    let plain = arguments.headers.iter().map(|line| header(line, false));
    let secret = arguments
        .secret_header_files
        .iter()
        .map(|file| header(&read_line(file)?, true));
    plain.chain(secret).collect()
}

fn header(line: &str, secret: bool) -> Result<Header, Failure> {
    match parse_header(line, secret) {
        Ok(Some(header)) => Ok(header),
        Ok(None) => Err(Failure::Usage(
            "an extra header must look like 'Name: value'".to_owned(),
        )),
        Err(error) => Err(usage(error)),
    }
}

/// The content of a small file that holds a secret, without the line break at its end.
fn read_line(file: &Path) -> Result<String, Failure> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(error) => Err(Failure::Usage(format!(
            "cannot read {}: {}",
            file.display(),
            errno_text(&error)
        ))),
    }
}
