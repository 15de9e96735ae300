//! Images that are damaged, need another file, or have another format than the options say.

use testkit::mistake::UserMistake;
use testkit::user_mistakes;

pub(super) const DAMAGED_IMAGES: &[UserMistake] = user_mistakes! {
    "import {files}/half.gz {target}" =>
        4: "{files}/half.gz", "the gzip stream is truncated", "fetch it again";
    "import {files}/half.xz {target}" =>
        4: "{files}/half.xz", "the xz stream is truncated", "fetch it again";
    "import {files}/half.zst {target}" =>
        4: "{files}/half.zst", "the zstd stream is truncated", "fetch it again";
    "import {files}/half.bz2 {target}" =>
        4: "{files}/half.bz2", "the bzip2 stream is truncated", "fetch it again";
    "import {files}/damaged.gz {target}" =>
        4: "{files}/damaged.gz", "the gzip stream is corrupt", "compare its checksum";
    "import {files}/damaged.xz {target}" =>
        4: "{files}/damaged.xz", "the xz stream is corrupt", "compare its checksum";
    "import {files}/damaged.zst {target}" =>
        4: "{files}/damaged.zst", "the zstd stream is corrupt", "compare its checksum";
    "import {files}/damaged.bz2 {target}" =>
        4: "{files}/damaged.bz2", "the bzip2 stream is corrupt", "compare its checksum";
    "import {files}/half-disk.qcow2 {target}" =>
        4: "{files}/half-disk.qcow2", "the image is truncated", "fetch it again";
    "import {files}/half-disk.vmdk {target}" =>
        4: "{files}/half-disk.vmdk", "the image is truncated", "fetch it again";
    "import {files}/half-disk.vdi {target}" =>
        4: "{files}/half-disk.vdi", "the image is truncated", "fetch it again";
    "import {files}/half-disk.vhd {target}" =>
        4: "{files}/half-disk.vhd", "the image is truncated", "fetch it again";
    "import {files}/half-disk.vhdx {target}" =>
        4: "{files}/half-disk.vhdx", "the image is truncated", "fetch it again";
    "convert {files}/half-disk.vhdx {target}" =>
        4: "{files}/half-disk.vhdx", "the image is truncated", "fetch it again";
    "import {files}/damaged-disk.qcow2 {target}" =>
        4: "{files}/damaged-disk.qcow2", "invalid qcow2 image: header length", "qemu-img check";
    "import {files}/damaged-disk.vmdk {target}" =>
        4: "{files}/damaged-disk.vmdk", "invalid vmdk image", "qemu-img check";
    "import {files}/damaged-disk.vhd {target}" =>
        4: "{files}/damaged-disk.vhd", "the footer's checksum", "qemu-img check";
    "check {files}/damaged-disk.qcow2" =>
        4: "{files}/damaged-disk.qcow2", "invalid qcow2 image: header length", "fetch it again";
    "check {files}/half-disk.vhdx" =>
        4: "{files}/half-disk.vhdx", "the image has 1 error(s)", "repair a copy with `qemu-img check";
    "check {files}/raw" =>
        4: "{files}/raw", "the image is raw: it has no structure", "compare its checksum";
    "import {files}/child.qcow2 {target}" =>
        4: "{files}/child.qcow2", "a backing file \"/etc/base.img\"", "flatten it first";
    "import {files}/huge.qcow2 {target}" =>
        5: "{target}", "file too large", "choose another one";
    "import {files}/encrypted.qcow2 {target}" =>
        4: "{files}/encrypted.qcow2", "encrypted (LUKS)", "decrypt it first";
    "import {files}/flat.vmdk {target}" =>
        4: "{files}/flat.vmdk", "in other files (its first one is \"flat-flat.vmdk\")", "merge it into one file";
    "import {files}/external.qcow2 {target}" =>
        4: "{files}/external.qcow2", "external data file", "convert it first";
    "import --format qcow2 {files}/raw {target}" =>
        4: "{files}/raw", "not in qcow2 format: its first bytes are raw", "leave out --format";
    "import --format vhdx {files}/disk.qcow2 {target}" =>
        4: "{files}/disk.qcow2", "not in vhdx format: its first bytes are qcow2", "leave out --format";
    "import --format vmdk {files}/empty {target}" =>
        4: "{files}/empty", "the source is empty", "check what it should contain";
    "import --ova {files}/raw {target}" =>
        4: "{files}/raw", "does not look like an OVA", "leave out --ova";
    "import --ova {files}/disk.ova {target}" =>
        4: "{files}/disk.ova", "contains no disk image", "it contains `vm.ovf`";
    "import --ova {files}/two.ova {target}" =>
        4: "{files}/two.ova", "`a.raw` came before this one", "import them one by one";
    "import --ova {files}/half.tar {target}" =>
        4: "{files}/half.tar", "the archive is truncated", "fetch it again";
};
