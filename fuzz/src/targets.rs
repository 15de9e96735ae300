//! The fuzz targets, and their names.

mod archive;
mod decode;
mod detect;
mod form;
mod guard;
mod headers;
mod images;
mod manifest;
mod nbd;
mod nfc;
mod publisher;
mod text;
mod transfer;
mod xml;

/// Feeds an input to the code of a target.
pub type FuzzTarget = fn(&[u8]);

pub const TARGETS: [(&str, FuzzTarget); 18] = [
    ("archive", archive::run),
    ("decode", decode::run),
    ("detect", detect::run),
    ("form", form::run),
    ("guard", guard::run),
    ("headers", headers::run),
    ("manifest", manifest::run),
    ("nbd", nbd::run),
    ("nfc", nfc::run),
    ("publisher", publisher::run),
    ("qcow2", images::qcow2),
    ("text", text::run),
    ("transfer", transfer::run),
    ("vdi", images::vdi),
    ("vhd", images::vhd),
    ("vhdx", images::vhdx),
    ("vmdk", images::vmdk),
    ("xml", xml::run),
];

/// Returns the target `name`.
pub fn named(name: &str) -> FuzzTarget {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no fuzz target {name:?}")).1
}
