//! Choice of the image for a platform from the images of an index.

use super::manifest::{ImageIndex, ImagePlatform, OciDescriptor};

/// The operating system that images are made for.
const OS: &str = "linux";

/// Maximum number of platforms that are listed if none of them fits.
const SHOWN_PLATFORMS: usize = 16;

/// Variants of an architecture, from the most capable to the least capable, which all others can
/// run (as in Go's image tools).
const COMPATIBLE: [(&str, &[&str]); 2] = [("arm", &["v8", "v7", "v6", "v5"]), ("arm64", &["v8"])];

/// Platforms that are acceptable: an architecture and its variants, the best first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedPlatforms {
    architecture: String,
    variants: Vec<&'static str>,
}

impl WantedPlatforms {
    /// Accepts the requested architecture in any variant. Without a request, accepts this
    /// machine's architecture, in the variants that it can run.
    pub fn new(requested: Option<&str>) -> Self {
        let own = own_architecture();
        let architecture = go_architecture(requested.unwrap_or(own)).to_owned();
        let compatible = COMPATIBLE
            .iter()
            .find(|(name, _)| *name == architecture)
            .map_or(&[][..], |(_, variants)| variants);
        let detected = requested.is_none().then(|| own_variant(own)).flatten();
        let variants =
            match detected.and_then(|own| compatible.iter().position(|variant| *variant == own)) {
                Some(best) => compatible[best..].iter().copied().chain([""]).collect(),
                None => [""].into_iter().chain(compatible.iter().copied()).collect(),
            };
        Self { architecture, variants }
    }

    /// Chooses the image, or returns the reason why none fits.
    pub fn choose_image<'a>(&self, index: &'a ImageIndex) -> Result<&'a OciDescriptor, String> {
        let ranked = index
            .manifests
            .iter()
            .filter_map(|descriptor| Some((self.image_rank(descriptor)?, descriptor)));
        let best = ranked.min_by_key(|(rank, _)| *rank).map(|(_, descriptor)| descriptor);
        best.ok_or_else(|| {
            let Self { architecture, variants } = self;
            let variant = variants.first().copied().unwrap_or_default();
            format!(
                "no image found in {} for architecture {architecture:?}, variant {variant:?}, OS {OS:?}",
                index.kind
            )
        })
    }

    /// Returns the images of `index` that fit exactly as well as `chosen`, `chosen` included.
    pub(super) fn equally_good<'a>(
        &self,
        index: &'a ImageIndex,
        chosen: &OciDescriptor,
    ) -> Vec<&'a OciDescriptor> {
        let rank = self.image_rank(chosen);
        index.manifests.iter().filter(|descriptor| self.image_rank(descriptor) == rank).collect()
    }

    /// Returns how well the image fits, 0 for the best; `None` if it does not.
    fn image_rank(&self, descriptor: &OciDescriptor) -> Option<usize> {
        match &descriptor.platform {
            Some(platform) => self.platform_rank(platform),
            // An image without a platform is better than no image.
            None => Some(self.variants.len()),
        }
    }

    /// Lists the platforms of an index, for the error that none of them fits.
    pub(super) fn list_platforms(index: &ImageIndex) -> String {
        let platforms =
            index.manifests.iter().filter_map(|descriptor| descriptor.platform.as_ref());
        let names =
            platforms.take(SHOWN_PLATFORMS).map(|it| format!("{}/{}", it.os, it.architecture));
        names.collect::<Vec<_>>().join(", ")
    }

    fn platform_rank(&self, platform: &ImagePlatform) -> Option<usize> {
        let fits =
            platform.os == OS && go_architecture(&platform.architecture) == self.architecture;
        let rank = || self.variants.iter().position(|variant| *variant == platform.variant);
        fits.then(rank).flatten()
    }
}

/// Returns this machine's architecture by its name in Go.
pub fn own_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86" => "386",
        "loongarch64" => "loong64",
        "powerpc64" => "ppc64le",
        other => go_architecture(other),
    }
}

/// Returns Go's name for an architecture that may have its name in the Linux kernel, as in the
/// indexes of Podman's machine images.
pub(super) fn go_architecture(name: &str) -> &str {
    match name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Returns this machine's variant, for architectures that have variants.
fn own_variant(architecture: &str) -> Option<&'static str> {
    match architecture {
        "arm64" => Some("v8"),
        "arm" => {
            #[cfg(unix)]
            let name = rustix::system::uname();
            #[cfg(unix)]
            let machine = name.machine().to_string_lossy();
            #[cfg(not(unix))]
            let machine = "";
            let known = [
                ("aarch64", "v8"),
                ("armv8", "v8"),
                ("armv7", "v7"),
                ("armv6", "v6"),
                ("armv5", "v5"),
            ];
            known
                .iter()
                .find(|(prefix, _)| machine.starts_with(prefix))
                .map(|(_, variant)| *variant)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(kind: &'static str, platforms: &[&str]) -> ImageIndex {
        let manifests = platforms
            .iter()
            .enumerate()
            .map(|(position, platform)| {
                let parts: Vec<_> = platform.split('/').map(str::to_owned).collect();
                OciDescriptor {
                    platform: (parts.len() == 3).then(|| ImagePlatform {
                        os: parts[0].clone(),
                        architecture: parts[1].clone(),
                        variant: parts[2].clone(),
                    }),
                    ..OciDescriptor::from_bytes(&[u8::try_from(position).unwrap()])
                }
            })
            .collect();
        ImageIndex { kind, manifests }
    }

    #[test]
    fn the_best_variant_is_chosen() {
        for (requested, platforms, expected) in [
            ("amd64", "linux/arm/v5 windows/amd64/ linux/arm/v7 linux/amd64/", Some(3)),
            ("arm", "linux/arm/v5 windows/amd64/ linux/arm/v7 linux/amd64/", Some(2)),
            ("arm", "linux/arm/v7 linux/arm/", Some(1)),
            ("arm64", "linux/arm64/v9 linux/arm64/v8", Some(1)),
            ("s390x", "linux/amd64/ nothing", Some(1)),
            ("amd64", "nothing linux/amd64/", Some(1)),
            ("amd64", "linux/amd64/v2", None),
            ("amd64", "unknown/unknown/ linux/aarch64/ linux/x86_64/", Some(2)),
            ("aarch64", "linux/amd64/ linux/arm64/v8", Some(1)),
        ] {
            let index = index("image index", &platforms.split(' ').collect::<Vec<_>>());
            let chosen = WantedPlatforms::new(Some(requested)).choose_image(&index).ok();
            let at = chosen.and_then(|chosen| index.manifests.iter().position(|one| one == chosen));
            assert_eq!(at, expected, "{requested} of {platforms}");
        }
    }

    #[test]
    fn a_missing_platform_is_reported_with_the_message_of_cdi() {
        for name in ["image index", "manifest list"] {
            let index = index(name, &["linux/amd64/"]);
            assert_eq!(
                WantedPlatforms::new(Some("absent")).choose_image(&index).unwrap_err(),
                format!(
                    "no image found in {name} for architecture \"absent\", variant \"\", OS \"linux\""
                )
            );
        }
        let index = index("image index", &["linux/amd64/", "windows/arm64/v8"]);
        assert_eq!(WantedPlatforms::list_platforms(&index), "linux/amd64, windows/arm64");
        assert_eq!(WantedPlatforms::new(None).architecture, own_architecture());
    }
}
