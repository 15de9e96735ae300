//! Commands without a cluster.

use serde_json::{Value, json};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::process::Program;

use crate::{BINARY, write_kubeconfig};

#[test]
fn a_dry_run_needs_no_cluster() {
    let laptop = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| laptop.path().join(name).display().to_string();
    let [nobody] = testkit::ports::free();
    write_kubeconfig(path("config").as_ref(), &format!("https://{nobody}"));
    std::fs::write(path("image"), disk::content(1, 3 << 20)).or_fail("an image");
    let run = |line: &str| {
        let words = line.replace("IMAGE", &path("image"));
        let program = Program::new(BINARY).args(words.split(' '));
        program.env("KUBECONFIG", path("config")).env("XDG_STATE_HOME", laptop.path()).run()
    };
    // None of this depends on a cluster.
    for line in [
        "upload IMAGE dv/shown --size 10GB --access-mode RWX",
        "import s3://images/disk.img dv/shown --size 10G --access-mode ReadWriteMany",
        "upload IMAGE dv/shown --volume-mode Block",
    ] {
        let finished = run(&format!("{line} --dry-run client -o yaml"));
        finished.assert_success(line);
        assert_eq!(finished.stderr, "", "{line}");
        if line.contains("10G") {
            let size = "storage: '10000000000'";
            assert!(finished.stdout.replace('"', "'").contains(size), "{}", finished.stdout);
            assert!(finished.stdout.contains("- ReadWriteMany"), "{}", finished.stdout);
        }
    }
    for kubeconfig in ["config", "none"] {
        let kubeconfig = path(kubeconfig);
        let line = format!("upload IMAGE dv/shown -n vms --kubeconfig {kubeconfig} --dry-run");
        let finished = run(&format!("{line}=client -o json"));
        finished.assert_success("a dry run");
        let shown: Value = serde_json::from_str(&finished.stdout).or_fail(&finished.stdout);
        assert_eq!(shown["metadata"], json!({"name": "shown", "namespace": "vms"}));
        let size = &shown["spec"]["storage"]["resources"]["requests"]["storage"];
        assert_eq!(size, "11Mi", "{shown}");
        let warning = "the size assumes CDI's default filesystem overhead of 6 %; --dry-run server";
        assert!(finished.stderr.contains(warning), "{}", finished.stderr);
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
        let code = if kubeconfig.ends_with("none") { 2 } else { 7 };
        assert_eq!(run(&format!("{line}=server")).code(), code);
    }
    run("upload IMAGE dv/a -n A_B --dry-run client").assert_failure(2, "\"A_B\"");
}
