//! The rules of the sandbox for CDI's importer pod.

use fetch::scheme::SourceKind;
use hypervisors::vddk::VddkSourceOptions;
use program::env::NamedStrings;
use program::paths::PodPaths;
use sandbox::SandboxRules;

use super::SOURCE_VARIABLE;
use super::config::{CONTENT_TYPE, DONE_FILE, ENDPOINT, READY_FILE, vddk_options};
use super::image_volume::{ENV_FILE, IMAGE_ROOT_DIR};
pub(super) use crate::confine::enter_pod;
use crate::confine::{add_location, pod_rules};

/// Returns what the pod with the environment `env` may open.
pub(super) fn import_rules(env: &dyn NamedStrings) -> SandboxRules {
    let paths = PodPaths::from_env(env);
    let variable = |name: &str| env.get(name).filter(|value| !value.is_empty());
    let mut rules = pod_rules(env);
    if paths.block_device().exists() {
        rules.write_disk(paths.block_device());
    } else if variable(CONTENT_TYPE).as_deref() == Some("archive") {
        rules.write_tree(paths.data_path());
    } else {
        rules.create_in(paths.data_path());
    }
    rules.create_in(paths.scratch_path());
    // A side container creates this file while the pod waits.
    if let Some(file) = variable(READY_FILE) {
        rules.read(datapath::disk::folder_of(file.as_ref()));
    }
    if let Some(file) = variable(DONE_FILE) {
        rules.create_in(datapath::disk::folder_of(file.as_ref()));
    }
    for path in [IMAGE_ROOT_DIR, ENV_FILE].into_iter().filter_map(variable) {
        rules.read(path);
    }
    let source = variable(SOURCE_VARIABLE);
    if source.as_deref() == Some(SourceKind::Vddk.name()) {
        let vddk = vddk_options(&paths);
        rules.read(&vddk.installation.config_file);
        if vddk.uses_nbdkit() {
            rules.defer();
        }
    }
    // The only one that may be a file of the pod: `oci-archive:`.
    if source.as_deref() == Some(SourceKind::Registry.name()) {
        let place = variable(ENDPOINT).unwrap_or_default();
        add_location(&mut rules, &place, VddkSourceOptions::default());
    }
    rules
}
