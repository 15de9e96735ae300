//! Opens the source that is given on a command line.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;

use fetch::file::FileSource;
use fetch::http::{ExtraHeader, parse_header};
use fetch::pod::fixed_connections;
use fetch::policy::{ExtraPermissions, ImportPolicy};
use fetch::proxy::ProxyConfig;
use fetch::scheme::{SourceKind, find_scheme};
use fetch::{BasicCredentials, Network, RetryPolicy};
use https::tls::{self, TrustedRoots};
use hypervisors::Checkpoints;
use hypervisors::vddk::{self, VddkInstallation, VddkOptions, VddkSourceOptions, VmwareSurvey};
use oci::{self, RegistryOptions};
use program::env::{NamedStrings, ProcessEnv};
use program::paths::PodPaths;
use publisher::{DocumentReader, read_file, read_key_file};
use sources::{OpenedSource, SourceInfo, SourceLocation, SourceOptions};
use stores::objects::{AddressingStyle, ObjectOptions};
use stream::error::errno_text;
use stream::observe::Observer;
use stream::options::PayloadKind;
use stream::source::Source;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::advice::{self, GIVE_LOGIN};
use super::args::{SourceArgs, check_options};
use super::failure::{ImporterCommandError, internal_error, usage_error};
use super::openstack;

/// The parts of the process that a job needs.
pub(super) struct JobContext {
    /// The runtime that reads from the network.
    pub(super) handle: Handle,
    /// Cancels the job and everything that it waits for.
    pub(super) stop: CancellationToken,
    /// Receives the events of the transfer and of its source.
    pub(super) observer: Arc<dyn Observer>,
}

impl JobContext {
    /// Opens a source on this machine, which is a path, or `-` for standard input.
    pub(super) fn open_local(&self, path: &Path) -> Result<Box<dyn Source>, ImporterCommandError> {
        Ok(Box::new(FileSource::open(path, self.stop.clone())?))
    }

    /// Opens the source of an image that `arguments` name. On a web server the image may be in the
    /// tar of an OCI layout. `is_checked` is true if a checksum of the whole object was given and
    /// will be verified.
    pub(super) fn open_image(
        &self,
        arguments: &SourceArgs,
        is_checked: bool,
    ) -> Result<Box<dyn Source>, ImporterCommandError> {
        Ok(self.open_located_image(arguments, is_checked, is_checked)?.0)
    }

    /// Like [`JobContext::open_image`], and returns the URL at which redirects of a web server
    /// ended. `will_be_checked` is true if the checksum is not known yet, but will be when the
    /// image is read.
    pub(super) fn open_located_image(
        &self,
        arguments: &SourceArgs,
        is_checked: bool,
        will_be_checked: bool,
    ) -> Result<(Box<dyn Source>, Option<Url>), ImporterCommandError> {
        let (OpenedSource { source, info }, kind) = self.open_place(arguments, is_checked)?;
        let location = match info {
            SourceInfo::Web(location) => Some(location),
            _ => None,
        };
        // With --format or --ova the content is known.
        let is_known = arguments.content.payload_kind() != PayloadKind::default();
        if kind != SourceKind::Http || is_known && arguments.layer.is_none() {
            return Ok((source, location));
        }
        let options = registry_options(arguments)?;
        Ok((oci::open_layout(source, &options, will_be_checked)?, location))
    }

    /// Returns a reader for documents beside the image that `arguments` name.
    pub(super) fn document_reader(
        &self,
        arguments: &SourceArgs,
    ) -> Result<DocumentReader, ImporterCommandError> {
        let network = self.open_network(arguments, read_credentials(arguments)?, false)?;
        Ok(DocumentReader {
            network: Arc::new(network),
            image: Url::parse(&arguments.source).ok(),
            headers: read_headers(arguments)?,
        })
    }

    /// Opens any other source that `arguments` name.
    pub(super) fn open_source(
        &self,
        arguments: &SourceArgs,
        is_checked: bool,
    ) -> Result<Box<dyn Source>, ImporterCommandError> {
        match self.open_place(arguments, is_checked)? {
            (_, SourceKind::Http) if arguments.layer.is_some() => Err(usage_error(
                "this command does not support --layer for a web server; `import` does",
            )),
            (opened, _) => Ok(opened.source),
        }
    }

    /// Describes the server or the machine that `arguments` name. `None` unless they are VMware's
    /// and without a disk.
    pub(super) fn survey_vmware(
        &self,
        arguments: &SourceArgs,
    ) -> Result<Option<VmwareSurvey>, ImporterCommandError> {
        if !is_vmware(&arguments.source) {
            return Ok(None);
        }
        let checkpoints = source_checkpoints(arguments);
        let options =
            VddkOptions::parse(arguments.source.trim(), checkpoints, vddk_options(arguments))
                .map_err(usage_error)?;
        if options.names_disk() {
            return Ok(None);
        }
        check_options(arguments, SourceKind::Vddk, false).map_err(usage_error)?;
        let credentials = read_credentials(arguments)?;
        vddk::require_credentials(credentials.as_ref())
            .map_err(|error| usage_error(format!("{error}: {GIVE_LOGIN}")))?;
        let network = self.open_network(arguments, credentials, false)?;
        Ok(Some(VmwareSurvey::of_server(&options, &Arc::new(network))?))
    }

    fn open_place(
        &self,
        arguments: &SourceArgs,
        is_checked: bool,
    ) -> Result<(OpenedSource, SourceKind), ImporterCommandError> {
        let credentials = read_credentials(arguments)?;
        let options = SourceOptions {
            access: openstack::glance_access(
                &arguments.source,
                credentials.as_ref(),
                arguments.ambient_identity,
            )?,
            ..source_options(arguments)?
        };
        let mut place = SourceLocation::parse(&arguments.source, options)
            .map_err(|error| usage_error(advice::describe(&error.into(), None)))?;
        check_options(arguments, place.kind(), place.is_local()).map_err(usage_error)?;
        if arguments.content.is_contradictory() {
            return Err(usage_error(
                "--ova reads one file of an archive, --format verbatim the whole archive: remove one of them",
            ));
        }
        place.check_request(credentials.as_ref()).map_err(|error| match place.kind() {
            SourceKind::ImageIo | SourceKind::Vddk => usage_error(format!("{error}: {GIVE_LOGIN}")),
            SourceKind::Nbd => usage_error(format!("{error}; write nbd://HOST:PORT/EXPORT")),
            _ => usage_error(error),
        })?;
        if let SourceLocation::File(path) = &place {
            let source = self.open_local(path)?;
            return Ok((OpenedSource { source, info: SourceInfo::None }, place.kind()));
        }
        if matches!(place, SourceLocation::Vddk(_))
            && arguments.content.payload_kind() != PayloadKind::default()
        {
            return Err(usage_error(
                "--format and --ova are for images: a VMware disk is always read as raw",
            ));
        }
        let network = self.open_network(arguments, credentials, is_checked)?;
        if let SourceLocation::Http { headers, .. } = &mut place {
            *headers = self::read_headers(arguments)?;
        }
        let opened = sources::open_source(&place, &Arc::new(network))?;
        // VMware's helper program runs now, so this process need not start another one.
        sandbox::enter_deferred()?;
        Ok((opened, place.kind()))
    }

    fn open_network(
        &self,
        arguments: &SourceArgs,
        credentials: Option<BasicCredentials>,
        is_checked: bool,
    ) -> Result<Network, ImporterCommandError> {
        let tls = if arguments.insecure {
            tls::insecure_client_config()
        } else {
            let mut roots = TrustedRoots::from_system();
            if let Some(path) = &arguments.cacert {
                add_authorities(&mut roots, path)?;
            }
            tls::client_config(roots)
        };
        let tls = tls.map_err(internal_error)?;
        let granted = ExtraPermissions {
            ambient_identity: arguments.ambient_identity,
            cleartext_secrets: arguments.cleartext_secrets,
            token_services: arguments.token_services.clone(),
        };
        Ok(Network {
            credentials,
            insecure: arguments.insecure,
            proxy: ProxyConfig::from_env(|name| ProcessEnv.get(name)).map_err(usage_error)?,
            connections: arguments.connections.0.or_else(|| fixed_connections(&ProcessEnv)),
            retry_policy: retry_policy(arguments),
            // Without certificate verification, no host can be trusted to belong to a cloud
            // provider. An identity found on this machine is then sent only with
            // --ambient-identity.
            policy: ImportPolicy::command_line(&ProcessEnv, !arguments.insecure, &granted),
            is_checked,
            observer: Arc::clone(&self.observer),
            ..Network::new(self.handle.clone(), self.stop.clone(), Arc::new(tls))
        })
    }
}

/// Returns the limits for retries. Nobody should wait ten minutes for a mistyped address, so by
/// default the first contact has the limit of an unknown host. If `--retries` or
/// `--no-progress-timeout` is given, it applies to the first contact as well.
fn retry_policy(arguments: &SourceArgs) -> RetryPolicy {
    let default = RetryPolicy::default();
    let is_limited = arguments.retries.is_some() || arguments.no_progress_timeout.is_some();
    let no_progress_limit =
        arguments.no_progress_timeout.map_or(default.no_progress_limit, |time| time.0);
    RetryPolicy {
        no_progress_limit,
        retries: arguments.retries.or(arguments.default_retries),
        contact_limit: if is_limited { no_progress_limit } else { RetryPolicy::UNKNOWN_HOST_LIMIT },
        // Somebody waits, and the name is mistyped.
        unknown_host_retries: Some(2).filter(|_| !is_limited && io::stderr().is_terminal()),
        ..default
    }
}

/// Adds the certificates in `path`, which is a file or a directory.
fn add_authorities(roots: &mut TrustedRoots, path: &Path) -> Result<(), ImporterCommandError> {
    if path.is_dir() {
        // The directory is also read here, because the error of `add_dir` uses CDI's wording,
        // which refers to ConfigMaps.
        fs::read_dir(path).map_err(|error| {
            let (path, reason) = (path.display(), errno_text(&error));
            usage_error(format!("cannot read {path}: {reason}; check --cacert"))
        })?;
        return roots.add_dir(path).map_err(usage_error);
    }
    if roots.add_pem(&read_file("--cacert", path, tls::MAX_ROOTS_BYTES)?) == 0 {
        let path = path.display();
        return Err(usage_error(format!("{path} contains no certificate (PEM); check --cacert")));
    }
    Ok(())
}

/// Returns the options for sources of any kind; the address is separate.
fn source_options(arguments: &SourceArgs) -> Result<SourceOptions, ImporterCommandError> {
    Ok(SourceOptions {
        objects: ObjectOptions {
            anonymous: arguments.anonymous,
            addressing: AddressingStyle::Bucket,
            key_file: None,
        },
        registry: registry_options(arguments)?,
        checkpoints: source_checkpoints(arguments),
        vddk: vddk_options(arguments),
        ..SourceOptions::default()
    })
}

fn source_checkpoints(arguments: &SourceArgs) -> Checkpoints {
    Checkpoints {
        current: arguments.checkpoint.clone(),
        previous: arguments.previous_checkpoint.clone(),
    }
}

fn registry_options(arguments: &SourceArgs) -> Result<RegistryOptions, ImporterCommandError> {
    Ok(RegistryOptions {
        architecture: arguments.architecture.clone(),
        layer: arguments.layer.clone(),
        key: arguments.verify_key.as_deref().map(read_key_file).transpose()?,
    })
}

/// Returns how VMware disks are read. By default the paths of nbdkit and of VMware's library are
/// those in CDI's pod, which are also used in our image.
pub(super) fn vddk_options(arguments: &SourceArgs) -> VddkSourceOptions {
    let paths = PodPaths::from_env(&ProcessEnv);
    let of_pod = VddkInstallation::of_pod(|path| paths.resolve_path(path));
    VddkSourceOptions {
        thumbprint: arguments.thumbprint.clone(),
        has_certificates: arguments.cacert.is_some(),
        installation: match &arguments.vddk_library {
            Some(library) => VddkInstallation { library: library.clone(), ..of_pod },
            None => of_pod,
        },
        transport: arguments.transport.unwrap_or_default(),
    }
}

fn read_credentials(
    arguments: &SourceArgs,
) -> Result<Option<BasicCredentials>, ImporterCommandError> {
    let in_address = user_of_address(&arguments.source)?;
    if arguments.user.is_some() && in_address.is_some() {
        return Err(usage_error(
            "the address names a user, and so does --user: leave one of them out",
        ));
    }
    let user = arguments.user.as_ref().or(in_address.as_ref());
    let (user, file) = match (user, &arguments.password_file) {
        (Some(user), Some(file)) => (user, file),
        (None, Some(_)) => return Err(usage_error("--password-file needs --user")),
        (_, None) => return Ok(None),
    };
    let password = read_line("--password-file", file)?;
    match BasicCredentials::new(user, &password) {
        Some(credentials) => Ok(Some(credentials)),
        None => Err(usage_error(
            "neither the user name nor the password may be empty: check --user and --password-file",
        )),
    }
}

/// True for an address of VMware.
fn is_vmware(address: &str) -> bool {
    let scheme = address.split_once("://").map(|(name, _)| name.trim().to_ascii_lowercase());
    let known = scheme.and_then(|name| find_scheme(&name));
    known.is_some_and(|scheme| scheme.kind == SourceKind::Vddk)
}

/// Returns the user that the address of a VMware disk names.
fn user_of_address(address: &str) -> Result<Option<String>, ImporterCommandError> {
    if !is_vmware(address) {
        return Ok(None);
    }
    let options = VddkOptions::parse(address, Checkpoints::default(), VddkSourceOptions::default());
    options.map(|options| options.user).map_err(usage_error)
}

fn read_headers(arguments: &SourceArgs) -> Result<Vec<ExtraHeader>, ImporterCommandError> {
    let plain = arguments.headers.iter().map(|line| parse_extra_header(line, false, "--header"));
    let secret = arguments.secret_header_files.iter().map(|file| {
        let line = read_line("--secret-header-file", file)?;
        parse_extra_header(&line, true, &format!("--secret-header-file {}", file.display()))
    });
    plain.chain(secret).collect()
}

/// Parses `line` as a header. `option` is the option that contained it, for error messages.
fn parse_extra_header(
    line: &str,
    secret: bool,
    option: &str,
) -> Result<ExtraHeader, ImporterCommandError> {
    match parse_header(line, secret) {
        Ok(Some(header)) => Ok(header),
        Ok(None) => {
            let what =
                format!("{option}: it has no colon: an extra header must look like 'Name: value'");
            Err(usage_error(what))
        }
        Err(error) => Err(usage_error(error)),
    }
}

/// Reads a small file that contains a secret, without the line break at its end. `option` is the
/// option that names the file, for error messages.
fn read_line(option: &str, file: &Path) -> Result<String, ImporterCommandError> {
    match fs::read_to_string(file) {
        // Only line breaks, which editors add, are removed: a password may begin or end with
        // spaces.
        Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(error) => Err(usage_error(format!(
            "cannot read {}: {}; check {option}",
            file.display(),
            errno_text(&error)
        ))),
    }
}
