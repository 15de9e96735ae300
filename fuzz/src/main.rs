//! The program of `cargo fuzz`. The variable `FUZZ_TARGET` names the target.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    static TARGET: std::sync::LazyLock<cdi_fuzz::targets::FuzzTarget> =
        std::sync::LazyLock::new(|| {
            cdi_fuzz::targets::named(&std::env::var("FUZZ_TARGET").unwrap_or_default())
        });
    TARGET(data);
});

/// Other builds only run the seeds, as a test.
#[cfg(not(fuzzing))]
fn main() {}
