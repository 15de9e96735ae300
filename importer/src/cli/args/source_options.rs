//! A table of the options that have an effect only on some kinds of source.

use fetch::scheme::{SCHEMES, SourceKind};

use self::OptionScope::{Clouds, Only, Servers, Stores};
use super::SourceArgs;

/// An option in [`SourceArgs`], and the kinds of source on which it has an effect.
struct SourceOption {
    name: &'static str,
    scope: OptionScope,
    is_given: fn(&SourceArgs) -> bool,
}

const fn option(
    name: &'static str,
    scope: OptionScope,
    is_given: fn(&SourceArgs) -> bool,
) -> SourceOption {
    SourceOption { name, scope, is_given }
}

/// The kinds of source on which an option has an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OptionScope {
    /// The kinds in this list.
    Only(&'static [SourceKind]),
    /// Object stores.
    Stores,
    /// Object stores, and OpenStack.
    Clouds,
    /// All kinds except files.
    Servers,
}

impl OptionScope {
    fn contains(self, kind: SourceKind) -> bool {
        match self {
            Self::Only(kinds) => kinds.contains(&kind),
            Self::Stores => kind.is_object_store(),
            Self::Clouds => kind.is_object_store() || kind == SourceKind::Glance,
            Self::Servers => kind != SourceKind::File,
        }
    }
}

const HTTP: OptionScope = Only(&[SourceKind::Http]);
const VMWARE: OptionScope = Only(&[SourceKind::Vddk]);
const SNAPSHOTS: OptionScope = Only(&[SourceKind::ImageIo, SourceKind::Vddk]);
const REGISTRIES: OptionScope = Only(&[SourceKind::Registry]);
const LAYOUTS: OptionScope = Only(&[SourceKind::Http, SourceKind::Registry]);

/// The options that apply only to some kinds of source. All other options apply to every source.
const OPTIONS: [SourceOption; 20] = [
    option("--checkpoint", SNAPSHOTS, |given| given.checkpoint.is_some()),
    option("--previous-checkpoint", SNAPSHOTS, |given| given.previous_checkpoint.is_some()),
    option("--thumbprint", VMWARE, |given| given.thumbprint.is_some()),
    option("--vddk-library", VMWARE, |given| given.vddk_library.is_some()),
    option("--transport", VMWARE, |given| given.transport.is_some()),
    option("--anonymous", Stores, |given| given.anonymous),
    option("--ambient-identity", Clouds, |given| given.ambient_identity),
    option("--architecture", REGISTRIES, |given| given.architecture.is_some()),
    option("--layer", LAYOUTS, |given| given.layer.is_some()),
    option("--verify-key", REGISTRIES, |given| given.verify_key.is_some()),
    option("--token-service", REGISTRIES, |given| !given.token_services.is_empty()),
    option("--header", HTTP, |given| !given.headers.is_empty()),
    option("--secret-header-file", HTTP, |given| !given.secret_header_files.is_empty()),
    option("--user", Servers, |given| given.user.is_some()),
    option("--cacert", Servers, |given| given.cacert.is_some()),
    option("--insecure", Servers, |given| given.insecure),
    option("--cleartext-secrets", Servers, |given| given.cleartext_secrets),
    option("--connections", Servers, |given| given.connections.0.is_some()),
    option("--retries", Servers, |given| given.retries.is_some()),
    option("--no-progress-timeout", Servers, |given| given.no_progress_timeout.is_some()),
];

/// Rejects any of `arguments` that has no effect on a source of `kind`. `is_local` is true for a
/// source on this machine. If such an option were ignored, a user who asks for a snapshot would
/// get the current disk instead.
pub(in super::super) fn check_options(
    arguments: &SourceArgs,
    kind: SourceKind,
    is_local: bool,
) -> Result<(), String> {
    let has_effect = |option: &SourceOption| {
        option.scope.contains(kind) && !(is_local && option.scope == Servers)
    };
    let stray = |option: &&SourceOption| !has_effect(option) && (option.is_given)(arguments);
    let Some(option) = OPTIONS.iter().find(stray) else {
        return Ok(());
    };
    // Listing nearly all kinds would make the message hard to read, so a general term replaces the
    // list.
    let right = match option.scope {
        Servers => "sources on a server".to_owned(),
        scope => format!("{} sources", scheme_names(|kind| scope.contains(kind))),
    };
    let own = if is_local { "files".to_owned() } else { scheme_names(|other| other == kind) };
    Err(format!("{} is for {right}, not for {own}", option.name))
}

/// Returns the schemes of the kinds that `is_meant` accepts, as help lists them, without the
/// underlying protocol (`ovirt` for `ovirt+https`).
fn scheme_names(is_meant: impl Fn(SourceKind) -> bool) -> String {
    let listed = SCHEMES.iter().filter(|scheme| scheme.is_listed && is_meant(scheme.kind));
    let names: Vec<_> = listed.filter_map(|scheme| scheme.name.split('+').next()).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        source: SourceArgs,
    }

    fn check(options: &str, kind: SourceKind) -> Result<(), String> {
        let words = ["job", "source"].into_iter().chain(options.split_whitespace());
        check_options(&Cli::try_parse_from(words).unwrap().source, kind, kind == SourceKind::File)
    }

    #[test]
    fn only_options_of_this_source_or_of_all_sources_are_accepted() {
        for (options, kind) in [
            ("", SourceKind::File),
            ("--retries 3 --connections 2", SourceKind::Http),
            ("--checkpoint c --vddk-library /l", SourceKind::Vddk),
            ("--anonymous", SourceKind::S3),
            ("--insecure", SourceKind::Nbd),
            // The name before this version.
            ("--ca-dir d", SourceKind::Nbd),
        ] {
            assert_eq!(check(options, kind), Ok(()), "{options}");
        }
        let error = check("--verify-key k", SourceKind::Http).unwrap_err();
        assert!(error.starts_with("--verify-key is for docker, oci and oci-archive sources"));
    }
}
