//! Local files: those that are read, and those that are written.

use testkit::mistake::UserMistake;
use testkit::user_mistakes;

pub(super) const SOURCES: &[UserMistake] = user_mistakes! {
    "import {files}/nope {target}" =>
        3: "{files}/nope", "no such file", "check the path";
    "import nope.qcow2 {target}" =>
        3: "nope.qcow2", "no such file", "check the path";
    "import example.org/disk.qcow2 {target}" =>
        3: "example.org/disk.qcow2", "no such file", "begins with https://";
    "import http:/host/x {target}" =>
        3: "http:/host/x", "no such file", "two slashes";
    "import docker:{registry}/vm {target}" =>
        3: "docker:{registry}/vm", "no such file", "two slashes";
    "import {files}/directory {target}" =>
        3: "{files}/directory", "is a directory", "name a file in it";
    "import {files}/dangling {target}" =>
        3: "{files}/dangling", "no such file", "check the path";
    "import {files}/socket {target}" =>
        3: "{files}/socket", "no such device", "a file, a block device or a pipe";
    "import {files}/raw/disk {target}" =>
        3: "{files}/raw/disk", "not a directory", "check the path";
    "import {files}/empty {target}" =>
        4: "{files}/empty", "the source is empty: 0 bytes", "check what it should contain";
    "import /dev/null {target}" =>
        4: "/dev/null", "the source is empty", "check what it should contain";
    "import - {target}" =>
        4: "standard input", "the source is empty", "check what it should contain";
    "import - {target} <{files}/page.html" =>
        4: "standard input", "this is text, not a disk", "--format raw";
    "import - {target} <{files}/half.gz" =>
        4: "standard input", "the gzip stream is truncated", "fetch it again";
    "import file:///nope {target}" =>
        3: "/nope", "no such file", "check the path";
    "import file://host/disk.img {target}" =>
        2: "file://host/disk.img", "not a file on this machine", "write file:///PATH";
    "convert {files}/nope {target}" =>
        3: "{files}/nope", "no such file", "check the path";
    "info {files}/nope" =>
        3: "{files}/nope", "no such file", "check the path";
    "info {files}/directory" =>
        3: "{files}/directory", "is a directory", "name a file in it";
    "info {files}/empty" =>
        4: "{files}/empty", "the source is empty", "check what it should contain";
    "check {files}/nope" =>
        3: "{files}/nope", "no such file", "check the path";
    "unpack {files}/nope {folder}" =>
        3: "{files}/nope", "no such file", "check the path";
    "unpack {files}/empty {folder}" =>
        4: "{files}/empty", "the source is empty", "check what it should contain";
    "apply --base base.img {files}/nope {files}/raw" =>
        3: "{files}/nope", "no such file", "check the path";
};

pub(super) const FOREIGN_FILES: &[UserMistake] = user_mistakes! {
    "import {files}/page.html {target}" =>
        4: "{files}/page.html", "text, not a disk: it begins with \"<!DOCTYPE html>", "whether it requires a login";
    "import {files}/page.gz {target}" =>
        4: "{files}/page.gz", "this is text, not a disk", "give --format raw";
    "import {files}/error.json {target}" =>
        4: "{files}/error.json", "this is text, not a disk", "check the address";
    "import {files}/pointer {target}" =>
        4: "{files}/pointer", "git-lfs", "check the address";
    "import {files}/vm.ovf {target}" =>
        4: "{files}/vm.ovf", "<Envelope>", "check the address";
    "import /etc/passwd {target}" =>
        4: "/etc/passwd", "this is text, not a disk", "give --format raw";
    "import {files}/program {target}" =>
        4: "{files}/program", "a program (ELF), not a disk", "give --format raw";
    "import {files}/program.gz {target}" =>
        4: "{files}/program.gz", "a program (ELF), not a disk", "give --format raw";
    "import {files}/paper.pdf {target}" =>
        4: "{files}/paper.pdf", "a PDF document, not a disk", "give --format raw";
    "import {files}/disk.zip {target}" =>
        4: "{files}/disk.zip", "zip compression is not supported", "recompress the image with gzip";
    "import {files}/disk.7z {target}" =>
        4: "{files}/disk.7z", "7z compression is not supported", "recompress the image with gzip";
    "import {files}/disk.rar {target}" =>
        4: "{files}/disk.rar", "a RAR archive, not a disk", "give --format raw";
    "import {files}/disk.qed {target}" =>
        4: "{files}/disk.qed", "in qed format, which this version does not convert", "qemu-img convert -O qcow2";
    "info {files}/page.html" =>
        4: "{files}/page.html", "this is text, not a disk", "check the address";
    "info {files}/page.gz" =>
        4: "{files}/page.gz", "this is text, not a disk", "check the address";
    "info {files}/error.json" =>
        4: "{files}/error.json", "this is text, not a disk", "check the address";
    "info {files}/program" =>
        4: "{files}/program", "a program (ELF)", "check the address";
    "info {files}/program.gz" =>
        4: "{files}/program.gz", "a program (ELF)", "check the address";
    "info {files}/paper.pdf" =>
        4: "{files}/paper.pdf", "a PDF document", "check the address";
    "check {files}/page.html" =>
        4: "{files}/page.html", "this is text, not a disk", "check the address";
    "check {files}/page.gz" =>
        4: "{files}/page.gz", "this is text, not a disk", "check the address";
    "check {files}/error.json" =>
        4: "{files}/error.json", "this is text, not a disk", "check the address";
    "check {files}/program" =>
        4: "{files}/program", "a program (ELF)", "check the address";
    "check {files}/program.gz" =>
        4: "{files}/program.gz", "a program (ELF)", "check the address";
    "check {files}/paper.pdf" =>
        4: "{files}/paper.pdf", "a PDF document", "check the address";
};

pub(super) const TARGETS: &[UserMistake] = user_mistakes! {
    "import {files}/raw {files}/full/a" =>
        7: "{files}/full/a", "file exists", "pass --force to replace it";
    "import {files}/raw {files}/full" =>
        7: "{files}/full", "it is a directory", "a regular file or a block device";
    "import {files}/raw {files}/nope/disk.img" =>
        7: "{files}/nope/disk.img", "no such file or directory", "create the directory {files}/nope first";
    "import {files}/raw {files}/raw/disk.img" =>
        7: "{files}/raw/disk.img", "not a directory", "check the path";
    "import {files}/raw {files}/raw" =>
        7: "{files}/raw", "it is the source", "write to another target";
    "import --force {files}/raw {files}/raw" =>
        7: "{files}/raw", "it is the source", "write to another target";
    "import {files}/raw /proc/disk.img" =>
        7: "/proc/disk.img", "no such file or directory", "choose another directory";
    "import {files}/raw http://{http}/disk.img" =>
        7: "http://{http}/disk.img", "no such file or directory", "a file or a block device on this machine";
    "import {files}/raw {device}" =>
        5: "{files}/raw", "the target has room for 1048576", "choose a larger target";
    "import {files}/disk.qcow2 {device}" =>
        5: "{files}/disk.qcow2", "the target has room for 1048576", "choose a larger target";
    "import {files}/raw {memory}/disk.img" =>
        5: "{memory}/disk.img", "no space left on device", "choose another target";
    "import --preallocate {files}/disk.qcow2 {memory}/all.img" =>
        5: "{memory}/all.img", "no space left on device", "choose another target";
    "pack {files}/raw oci:{files}/full" =>
        7: "{files}/full", "does not belong to an OCI layout", "pass an empty or a new directory";
    "pack {files}/raw oci:{files}/raw" =>
        7: "{files}/raw", "not a directory", "check the path";
    "pack {files}/raw oci:{files}/layout" =>
        7: "{files}/layout/index.json", "file exists", "pass --force to replace it";
    "pack {files}/raw oci-archive:{files}/full/a" =>
        7: "{files}/full/a", "file exists", "pass --force to replace it";
    "pack --force {files}/raw oci-archive:{files}/raw" =>
        7: "{files}/raw", "it is the source", "write to another target";
    "pack {files}/raw oci-archive:{files}/nope/vm.tar" =>
        7: "{files}/nope/vm.tar", "no such file or directory", "create the directory {files}/nope first";
    "pack {files}/nope oci:{target}" =>
        3: "{files}/nope", "no such file", "check the path";
    "pack {files}/half-disk.vhdx oci:{target}" =>
        4: "{files}/half-disk.vhdx", "the image is truncated", "fetch it again";
    "import {files}/raw /dev/no-such-device" =>
        2: "/dev/no-such-device", "not found", "check the name";
    "import {files}/raw /dev/no-such-group/volume" =>
        2: "/dev/no-such-group/volume", "not found", "check the name";
    "import {files}/raw /dev/shm/../no-such-device" =>
        2: "/dev/shm/../no-such-device", "not found", "check the name";
    "convert {files}/raw /dev/no-such-device" =>
        2: "/dev/no-such-device", "not found", "check the name";
    "convert {files}/raw /dev/no-such-group/volume" =>
        2: "/dev/no-such-group/volume", "not found", "check the name";
    "convert {files}/raw /dev/shm/../no-such-device" =>
        2: "/dev/shm/../no-such-device", "not found", "check the name";
    "import {files}/raw -" =>
        2: "standard output", "not written in order", "choose a file";
    "convert {files}/raw -" =>
        2: "standard output", "not written in order", "choose a file";
    "unpack {files}/files.tar -" =>
        2: "standard output", "not written in order", "a directory";
    "apply --base base.img {files}/child.qcow2 -" =>
        2: "standard output", "not written in order", "choose a file";
};

pub(super) const ARCHIVES: &[UserMistake] = user_mistakes! {
    "unpack {files}/files.tar /nope" =>
        7: "/nope", "no such file or directory", "create the directory first";
    "unpack {files}/files.tar {files}/raw" =>
        7: "{files}/raw", "not a directory", "check the path";
    "unpack {files}/disk.qcow2 {folder}" =>
        4: "{files}/disk.qcow2", "does not look like a tar archive", "`cdi-importer import` writes disk images";
    "unpack {files}/raw {folder}" =>
        4: "{files}/raw", "does not look like a tar archive", "`cdi-importer info` shows what it is";
    "unpack {files}/page.html {folder}" =>
        4: "{files}/page.html", "does not look like a tar archive", "`cdi-importer info` shows what it is";
    "unpack {files}/half.gz {folder}" =>
        4: "{files}/half.gz", "does not look like a tar archive", "`cdi-importer info` shows what it is";
    "unpack {files}/half.tar {folder}" =>
        4: "{files}/half.tar", "the archive is truncated", "fetch it again";
    "unpack {files}/up.tar {folder}" =>
        4: "{files}/up.tar", "names must be relative to the target directory", "create the archive again without this entry";
    "unpack {files}/disk.zip {folder}" =>
        4: "{files}/disk.zip", "zip compression is not supported", "recompress";
    "unpack {files}/files.tar {files}/full" =>
        7: "{files}/full/a", "it exists already", "pass --overwrite";
    "apply {files}/child.qcow2 {files}/raw" =>
        2: "--base", "apply expects a qcow2 delta", "--previous-checkpoint";
    "apply --base base.img {files}/child.qcow2 {target}" =>
        7: "{target}", "no such file or directory", "create it first";
    "apply --base /etc/base.img {files}/child.qcow2 {files}/raw" =>
        4: "{files}/child.qcow2", "'base.img' does not match", "--base takes the name without directories";
    "apply --base other.img {files}/child.qcow2 {files}/raw" =>
        4: "{files}/child.qcow2", "'base.img' does not match", "the disk that it was made from";
    "apply --base base.img {files}/disk.qcow2 {files}/raw" =>
        4: "{files}/disk.qcow2", "no backing file", "`cdi-importer import` writes whole images";
    "apply --no-backing-name {files}/child.qcow2 {files}/raw" =>
        4: "{files}/child.qcow2", "has the backing file 'base.img'", "pass the name with --base";
    "restore {files}/child.qcow2 {files}/child.qcow2 {target}" =>
        4: "{files}/child.qcow2", "are the same file", "pass each file of the chain once";
    "restore {files}/child.qcow2 {files}/disk.qcow2 {target}" =>
        4: "{files}/child.qcow2", "not a full backup", "pass the full backup first";
    "restore {files}/disk.qcow2 {files}/child.qcow2 {target}" =>
        4: "{files}/child.qcow2", "its backing file is 'base.img'", "pass all files of the chain, oldest first";
    "restore {files}/disk.qcow2 {files}/raw {target}" =>
        4: "{files}/raw", "the format is raw", "then the incremental ones";
    "restore {files}/disk.qcow2 {files}/nope {target}" =>
        3: "{files}/nope", "no such file", "check the path";
    "restore --manifest {files}/error.json {files}/disk.qcow2 {files}/child.qcow2 {target}" =>
        2: "{files}/error.json", "line 1 is not 'SHA256  NAME'", "the output of sha256sum";
    "restore --checksum md5:d41d8cd98f00b204e9800998ecf8427e {files}/disk.qcow2 {files}/child.qcow2 {target}" =>
        2: "--checksum", "applies to a single image", "use --manifest";
    "apply --ranges {files}/page.html --backup-type full {files}/disk.qcow2 {files}/raw" =>
        3: "{files}/page.html", "not a backup map", "fetch the map of the backup again";
    "apply --base base.img {files}/raw {files}/raw" =>
        7: "{files}/raw", "it is the source", "write to another target";
};
