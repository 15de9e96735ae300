//! Compares us with qemu-img on thousands of images that differ from a sound one in a few fields.
//! We must not read what qemu-img refuses to open, must read the same disk otherwise, and `check`
//! must agree with `qemu-img check`.
//! The gate runs only a few cases of each kind, because qemu-img takes 10 ms for each.
//! `QEMU_CASES=1000` runs that many.

mod ask;
mod fields;
mod opened;
mod samples;
mod verdicts;

/// Returns how many cases to run for each sample: `QEMU_CASES` if it is set, otherwise `few`.
fn cases_of_each_sample(few: usize) -> usize {
    match std::env::var("QEMU_CASES") {
        Ok(number) => number.parse().expect("QEMU_CASES is a number"),
        Err(_) => few,
    }
}
