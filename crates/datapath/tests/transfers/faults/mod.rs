//! Whatever fails and whenever: the error must name the cause, and nothing may be left that looks
//! like a disk.

mod device;
mod kept;
mod limits;
mod source;
mod space;
mod stop;

use std::path::Path;

use crate::common::objects::{self, Object};
use testkit::images::{Compression, Content, Spec};
use testkit::tools;

/// Objects of about ten kilobytes, for faults at each of their sectors. The disk is entirely in
/// the first MiB, which is held back.
fn small_objects(folder: &Path) -> Vec<Object> {
    let plain = Spec { cluster_size: 512, virtual_size: 64 << 10, ..Spec::new(Content::Sparse) };
    let plain = objects::image(&plain, folder);
    let packed_clusters = Spec {
        cluster_size: 4096,
        compression: Compression::Zlib,
        virtual_size: 64 << 10,
        ..Spec::new(Content::Dense)
    };
    let raw = Object { name: "raw".into(), bytes: plain.disk.clone(), disk: plain.disk.clone() };
    let mut objects = vec![plain.packed("gzip"), objects::image(&packed_clusters, folder)];
    for program in tools::COMPRESSORS {
        objects.push(raw.packed(program));
    }
    objects.extend([plain, raw]);
    objects
}
