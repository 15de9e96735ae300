//! The rules of the sandbox for each command.

use std::path::Path;

use program::env::ProcessEnv;
use publisher::{is_url, signature_places};
use sandbox::{SandboxRules, TcpConnections};

use super::args::{EvidenceArgs, ImporterCommand, SourceArgs, WriteArgs};
use super::open::vddk_options;
use crate::confine::{add_identities, add_location};

/// Returns what `command` may open. `None` for a command that only starts another program.
pub(super) fn command_rules(command: &ImporterCommand) -> Option<SandboxRules> {
    let mut rules = SandboxRules::new(&ProcessEnv);
    match command {
        ImporterCommand::Import(arguments) => {
            add_source(&mut rules, &arguments.source);
            add_evidence(&mut rules, &arguments.evidence);
            add_target(&mut rules, &arguments.target, &arguments.write);
        }
        ImporterCommand::Convert(arguments) => {
            rules.read(&arguments.image);
            add_target(&mut rules, &arguments.target, &arguments.write);
        }
        ImporterCommand::Unpack(arguments) => {
            add_source(&mut rules, &arguments.source);
            rules.write_tree(&arguments.dir);
        }
        ImporterCommand::Apply(arguments) => {
            add_source(&mut rules, &arguments.source);
            rules.write_disk(&arguments.target);
            for map in &arguments.ranges {
                rules.read(map);
            }
        }
        ImporterCommand::Restore(arguments) => {
            for backup in &arguments.backups {
                rules.read(backup);
            }
            if let Some(manifest) = &arguments.manifest {
                rules.read(manifest);
            }
            add_target(&mut rules, &arguments.target, &arguments.write);
        }
        ImporterCommand::Pack(arguments) => {
            add_source(&mut rules, &arguments.source);
            for (_, source) in &arguments.disks {
                add_location(&mut rules, source, vddk_options(&arguments.source));
            }
            if let Some(config) = &arguments.config {
                rules.read(config);
            }
            if let Some(scratch) = &arguments.scratch {
                rules.create_in(scratch);
            }
            // A layout is written beside its place, and then renamed.
            rules.write_tree(datapath::disk::folder_of(&arguments.target.path));
        }
        ImporterCommand::Info(arguments) => add_source(&mut rules, &arguments.source),
        ImporterCommand::Check(arguments) => add_source(&mut rules, &arguments.source),
        ImporterCommand::Compare(arguments) => {
            rules.read(&arguments.first);
            rules.read(&arguments.second);
        }
        ImporterCommand::RunWithParent(_) => return None,
    }
    Some(rules)
}

fn add_target(rules: &mut SandboxRules, target: &Path, write: &WriteArgs) {
    rules.write_disk(target);
    if let Some(scratch) = &write.scratch {
        rules.create_in(scratch);
    }
}

fn add_source(rules: &mut SandboxRules, arguments: &SourceArgs) {
    add_location(rules, &arguments.source, vddk_options(arguments));
    let files = [&arguments.password_file, &arguments.cacert, &arguments.verify_key];
    for file in files.into_iter().flatten().chain(&arguments.secret_header_files) {
        rules.read(file);
    }
    add_identities(rules, &ProcessEnv);
}

/// Allows reading what shows who published the image.
fn add_evidence(rules: &mut SandboxRules, evidence: &EvidenceArgs) {
    if let Some(keyring) = &evidence.keyring {
        rules.read(keyring);
    }
    let list = evidence.verify_sums.iter();
    let beside = list.clone().flat_map(|list| signature_places(list));
    for place in list.chain(&evidence.signature).cloned().chain(beside) {
        if is_url(&place) {
            rules.connect(TcpConnections::Any);
        } else {
            rules.read(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::args::ImporterCli;

    /// The debug text of the rules for a command line.
    fn rules(words: &[&str]) -> String {
        let words = ["cdi-importer"].iter().chain(words);
        let cli = ImporterCli::try_parse_from(words).unwrap();
        format!("{:?}", command_rules(&cli.command))
    }

    #[test]
    fn only_sources_on_servers_need_a_network() {
        for (source, needs) in [
            ("/a/disk.qcow2", false),
            ("-", false),
            ("file:///a/disk.raw", false),
            ("oci:/a/layout:v1", false),
            ("oci-archive:/a/file.tar", false),
            ("https://host/disk.raw", true),
            ("docker://host/image", true),
            ("glance+https://cloud/image", true),
            ("nbd://host/export", true),
            ("nbd+unix:///export?socket=/run/s", false),
            ("nosuch://host/x", true),
        ] {
            let text = rules(&["import", source, "/b/disk.img"]);
            assert_eq!(text.contains("connections: Any"), needs, "{source}: {text}");
            let is_unix = source.starts_with("nbd+unix");
            assert_eq!(text.contains("unix: true"), is_unix, "{source}: {text}");
        }
    }

    #[test]
    fn commands_read_their_source_and_write_to_their_target() {
        let text = rules(&["unpack", "/a/files.tar", "/b"]);
        assert!(text.contains("\"/a/files.tar\"") && text.contains("trees: {\"/b\"}"), "{text}");
        let text = rules(&["import", "oci:/a/layout:v1", "/b/disk.img", "--scratch", "/tmp"]);
        let parts = ["\"/a/layout\"", "path: \"/b/disk.img\"", "create: {\"/tmp\"}"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        let list = ["import", "/a/x", "/b/x", "--verify-sums", "/c/SUMS", "--keyring", "/d/keys"];
        let text = rules(&list);
        let files = ["/c/SUMS", "/c/SUMS.gpg", "/d/keys"];
        assert!(files.iter().all(|file| text.contains(&format!("\"{file}\""))), "{text}");
        assert!(rules(&["import", "/a", "/b/x", "--verify-sums", "https://h/S"]).contains("Any"));
        assert!(rules(&["run-with-parent", "nbdkit"]).contains("None"));
        let source = "vddk+https://host/?vm=uuid&disk=[store] a/b.vmdk";
        let of = |transport| rules(&["info", source, "--transport", transport]);
        assert!(of("vddk").contains("deferred: Some"), "nbdkit is started");
        assert!(of("nfc").contains("connections: Any") && of("nfc").contains("deferred: None"));
    }
}
