//! Checks that the documentation lists every format that can be read.

use diskimage::Format;

fn document(name: &str) -> String {
    let path = format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn every_readable_format_is_listed_in_the_documentation() {
    let (formats, readme) = (document("docs/use/formats.md"), document("README.md").to_lowercase());
    for format in Format::readable_formats() {
        let (flag, qemu) = (format.flag_name(), format.qemu_name());
        let is_row = |line: &str| {
            let place = line.split('|').nth(2).unwrap_or_default();
            [flag, qemu].iter().all(|name| place.contains(&format!("`{name}`")))
        };
        assert!(formats.lines().any(is_row), "docs/use/formats.md has no row for {flag}");
        assert!(readme.contains(flag), "README.md does not name {flag}");
    }
}
