//! qemu-img's opinion of thousands of images that differ from a sound one in a field or two: what it refuses to open is not read, what
//! it reads is the same disk, and `check` says what `qemu-img check` says.
//!
//! The gate looks at a few cases of each kind: qemu-img takes 10 ms to look at one. `QEMU_CASES=1000` looks at so many.

mod ask;
mod fields;
mod opened;
mod samples;
mod verdicts;

/// How many cases of each kind to look at: as many as the environment says, or `few`.
fn cases_of_each_sample(few: usize) -> usize {
    match std::env::var("QEMU_CASES") {
        Ok(number) => number.parse().expect("QEMU_CASES is a number"),
        Err(_) => few,
    }
}
