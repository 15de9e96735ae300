//! The Nth system call of each kind fails, for every N, or for some of them where there are
//! hundreds (`testkit::failing`): once, and from there on. Whatever the system does, a program
//! says by an exit code of the table and a sentence how it ended, does not hang, and what it
//! leaves looks complete only if it is.
#![cfg(target_arch = "x86_64")]

mod disks;
mod trees;
mod uploads;
mod victim;
