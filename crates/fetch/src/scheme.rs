//! URL schemes of sources: one list for the importer's command line and for kubectl-cdi.

/// A kind of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SourceKind {
    /// A file, block device or pipe of this machine.
    File,
    /// A web server.
    #[default]
    Http,
    /// Amazon S3, or a server that implements its protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// A container registry, or a saved container image.
    Registry,
    /// An NBD server.
    Nbd,
    /// An oVirt engine.
    ImageIo,
    /// VMware.
    Vddk,
    /// An OpenStack cloud.
    Glance,
}

impl SourceKind {
    /// Returns CDI's name for this kind of source.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Http => "http",
            Self::S3 => "s3",
            Self::Gcs => "gcs",
            Self::Registry => "registry",
            Self::Nbd => "nbd",
            Self::ImageIo => "imageio",
            Self::Vddk => "vddk",
            Self::Glance => "glance",
        }
    }

    /// Returns true for an object store: a server with buckets of objects, which it can sign for.
    pub const fn is_object_store(self) -> bool {
        matches!(self, Self::S3 | Self::Gcs)
    }
}

/// A URL scheme that an address may begin with.
#[derive(Debug, Clone, Copy)]
pub struct UrlScheme {
    /// The part before the colon.
    pub name: &'static str,
    /// The kind of source that the scheme selects.
    pub kind: SourceKind,
    /// True if help and errors list it.
    pub is_listed: bool,
    /// True if CDI's API accepts such an address, so that the cluster can fetch it.
    pub is_for_clusters: bool,
}

const fn scheme(
    name: &'static str,
    kind: SourceKind,
    is_listed: bool,
    is_for_clusters: bool,
) -> UrlScheme {
    UrlScheme { name, kind, is_listed, is_for_clusters }
}

/// All schemes, in the order in which help and errors list them.
pub const SCHEMES: [UrlScheme; 18] = [
    scheme("http", SourceKind::Http, true, true),
    scheme("https", SourceKind::Http, true, true),
    scheme("s3", SourceKind::S3, true, true),
    scheme("gs", SourceKind::Gcs, true, true),
    scheme("docker", SourceKind::Registry, true, true),
    scheme("oci", SourceKind::Registry, true, false),
    scheme("oci-archive", SourceKind::Registry, true, true),
    scheme("nbd", SourceKind::Nbd, true, false),
    scheme("nbds", SourceKind::Nbd, false, false),
    scheme("nbd+unix", SourceKind::Nbd, false, false),
    scheme("nbds+unix", SourceKind::Nbd, false, false),
    scheme("ovirt+http", SourceKind::ImageIo, false, false),
    scheme("ovirt+https", SourceKind::ImageIo, true, false),
    scheme("vddk+https", SourceKind::Vddk, true, false),
    scheme("vmware+https", SourceKind::Vddk, false, false),
    scheme("glance+http", SourceKind::Glance, false, false),
    scheme("glance+https", SourceKind::Glance, true, false),
    scheme("file", SourceKind::File, true, false),
];

/// Finds the scheme called `name`.
pub fn find_scheme(name: &str) -> Option<UrlScheme> {
    SCHEMES.into_iter().find(|scheme| scheme.name == name)
}

/// Returns the names of the schemes that help and errors list.
pub fn listed_schemes() -> Vec<&'static str> {
    let listed = SCHEMES.iter().filter(|scheme| scheme.is_listed);
    listed.map(|scheme| scheme.name).collect()
}
