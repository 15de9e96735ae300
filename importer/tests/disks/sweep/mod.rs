//! Failing system calls: the Nth call of each kind fails (once, or from there on) for every N, or
//! for some N of hundreds (`testkit::failing`). Whatever fails, a program ends in time with a
//! documented exit code and a sentence, and what it leaves looks complete only if it is.
#![cfg(target_arch = "x86_64")]

mod disks;
mod trees;
mod uploads;
mod victim;
