//! Plans the volume that `upload` and `import` create, or print with `--dry-run`, as kubectl does.

use super::args::{DryRun, ManifestFormat, VolumeArgs};
use super::print_text;
use crate::cluster::size::{FileSystem, VolumeSize, request_bytes};
use crate::cluster::volume::{build_manifest, to_yaml};
use crate::cluster::{
    CdiConfig, Cluster, ClusterOptions, VolumeMode, VolumeTarget, WantedVolume, check_namespace,
};
use crate::error::PluginError;

/// The options of a volume, and the cluster in which it is planned.
pub(super) struct VolumePlanner<'a> {
    volume: &'a VolumeArgs,
    /// The namespace that the user gave.
    namespace: Option<&'a str>,
    /// The cluster and CDI's configuration. `None` with `--dry-run client`, which contacts none.
    server: Option<(Cluster, CdiConfig)>,
}

impl<'a> VolumePlanner<'a> {
    /// Connects to the cluster.
    pub(super) async fn connect(
        volume: &'a VolumeArgs,
        cluster: &'a ClusterOptions,
    ) -> Result<Self, PluginError> {
        let namespace = cluster.namespace.as_deref();
        let server = if volume.dry_run == Some(DryRun::Client) {
            namespace.map_or(Ok(()), |it| check_namespace(it, "--namespace"))?;
            None
        } else {
            let cluster = Cluster::connect(cluster).await?;
            let config = cluster.cdi_config().await?;
            Some((cluster, config))
        };
        Ok(Self { volume, namespace, server })
    }

    /// Returns the cluster in which the volume is created. `None` with `--dry-run`.
    pub(super) fn cluster(&self) -> Option<&(Cluster, CdiConfig)> {
        self.server.as_ref().filter(|_| self.volume.dry_run.is_none())
    }

    /// Returns the size to request.
    pub(super) async fn request_bytes(&self, target: &VolumeTarget, size: VolumeSize) -> u64 {
        let disk_bytes = match size {
            VolumeSize::Given(bytes) => return bytes,
            VolumeSize::ForDisk(disk_bytes) => disk_bytes,
        };
        let mode = self.volume.options.volume_mode.unwrap_or_default();
        let file_system = match mode {
            VolumeMode::Filesystem => self.file_system().await,
            VolumeMode::Block => FileSystem::default(),
        };
        request_bytes(target.kind(), disk_bytes, mode, file_system)
    }

    /// Returns the properties of file systems in the volume's storage class. Without a cluster
    /// these are CDI's defaults.
    async fn file_system(&self) -> FileSystem {
        if let Some((cluster, config)) = &self.server {
            let class = self.volume.options.storage_class.as_deref();
            let overhead = config.class_overhead(class);
            return FileSystem { overhead, is_xfs: cluster.is_xfs(class).await };
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
        let text = match self.volume.output.unwrap_or(ManifestFormat::Yaml) {
            ManifestFormat::Yaml => to_yaml(&manifest).map_err(|error| error.to_string()),
            // Indented by two spaces, kubectl by four.
            ManifestFormat::Json => serde_json::to_string_pretty(&manifest)
                .map(|text| text + "\n")
                .map_err(|error| error.to_string()),
        };
        print_text(&text.map_err(PluginError::stdout)?)
    }
}
