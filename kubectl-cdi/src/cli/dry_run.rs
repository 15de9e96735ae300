//! `--dry-run`: prints the object that would be created, as kubectl does.

use super::args::{ClusterArgs, DryRun, ManifestFormat, VolumeArgs};
use super::print_text;
use crate::cluster::size::FileSystem;
use crate::cluster::volume::{build_manifest, to_yaml};
use crate::cluster::{CdiConfig, Cluster, WantedVolume, check_namespace};
use crate::error::PluginError;

/// A volume that is planned but not created.
pub(super) struct DryRunVolume<'a> {
    /// The cluster and its configuration, with `--dry-run server`.
    server: Option<(Cluster, CdiConfig)>,
    /// The namespace that the user gave.
    namespace: Option<&'a str>,
    storage_class: Option<&'a str>,
    format: ManifestFormat,
}

impl<'a> DryRunVolume<'a> {
    /// Returns `None` without `--dry-run`. No cluster is contacted with `--dry-run client`.
    pub(super) async fn begin(
        volume: &'a VolumeArgs,
        cluster: &'a ClusterArgs,
    ) -> Result<Option<Self>, PluginError> {
        let server = match volume.dry_run {
            None => return Ok(None),
            Some(DryRun::Client) => None,
            Some(DryRun::Server) => {
                let cluster = Cluster::connect(&cluster.clone().into()).await?;
                let config = cluster.cdi_config().await?;
                Some((cluster, config))
            }
        };
        let namespace = cluster.namespace();
        namespace.map_or(Ok(()), check_namespace)?;
        Ok(Some(Self {
            server,
            namespace,
            storage_class: volume.storage_class.as_deref(),
            format: volume.output.unwrap_or(ManifestFormat::Yaml),
        }))
    }

    /// Returns the properties of file systems in the volume's storage class. Without a cluster
    /// these are CDI's defaults.
    pub(super) async fn file_system(&self) -> FileSystem {
        if let Some((cluster, config)) = &self.server {
            return cluster.file_system(config, self.storage_class).await;
        }
        let file_system = FileSystem::default();
        let percent = file_system.overhead * 100.0;
        tracing::warn!(
            "the size assumes CDI's default filesystem overhead of {percent} %; --dry-run server reads the overhead from the cluster"
        );
        file_system
    }

    /// Prints the object. With `--dry-run server`, the server has accepted it before.
    pub(super) async fn print_manifest(&self, wanted: &WantedVolume) -> Result<(), PluginError> {
        let mut manifest = build_manifest(wanted);
        if let Some((cluster, _)) = &self.server {
            cluster.validate_volume(wanted).await?;
        }
        if let Some(namespace) = self.namespace {
            manifest["metadata"]["namespace"] = namespace.into();
        }
        let text = match self.format {
            ManifestFormat::Yaml => to_yaml(&manifest).map_err(|error| error.to_string()),
            // Indented by two spaces, kubectl by four.
            ManifestFormat::Json => serde_json::to_string_pretty(&manifest)
                .map(|text| text + "\n")
                .map_err(|error| error.to_string()),
        };
        print_text(&text.map_err(PluginError::stdout)?)
    }
}
