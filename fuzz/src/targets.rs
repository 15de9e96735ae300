//! The fuzz targets, and their names.

mod archive;
mod decode;
mod detect;
mod form;
mod guard;
mod headers;
mod manifest;
mod nbd;
mod publisher;
mod qcow2;
mod text;
mod transfer;
mod vdi;
mod vhd;
mod vhdx;
mod vmdk;
mod xml;

/// Feeds an input to the code of a target.
pub type FuzzTarget = fn(&[u8]);

pub const TARGETS: [(&str, FuzzTarget); 17] = [
    ("archive", archive::run),
    ("decode", decode::run),
    ("detect", detect::run),
    ("form", form::run),
    ("guard", guard::run),
    ("headers", headers::run),
    ("manifest", manifest::run),
    ("nbd", nbd::run),
    ("publisher", publisher::run),
    ("qcow2", qcow2::run),
    ("text", text::run),
    ("transfer", transfer::run),
    ("vdi", vdi::run),
    ("vhd", vhd::run),
    ("vhdx", vhdx::run),
    ("vmdk", vmdk::run),
    ("xml", xml::run),
];
