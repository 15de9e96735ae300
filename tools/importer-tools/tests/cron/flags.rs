//! The command line, which needs neither registry nor cluster.

use testkit::fail::OrFail;

use super::scene::program;

#[test]
fn namespace_name_and_url_are_required() {
    let flags = [["-ns", "a"], ["-cron", "b"], ["-url", "docker://c/d"]];
    for left_out in 0..flags.len() {
        let others = flags.iter().enumerate().filter(|(index, _)| *index != left_out);
        let words = others.flat_map(|(_, flag)| flag);
        let refused = program().args(words).run();
        let sentence =
            format!("One or more mandatory parameters are missing: {}\n", flags[left_out][0]);
        refused.assert_failure(1, &sentence);
    }
    program().arg("-cert=x").run().assert_failure(2, "not defined: -cert");
}

#[test]
fn help_and_version_are_printed() {
    let version = program().arg("--version").run();
    version.assert_success("version");
    assert!(version.stdout.starts_with("cdi-source-update-poller 0."), "{}", version.stdout);
    let help = program().arg("--help").run();
    help.assert_success("help");
    for flag in ["-ns text", "-cron", "-url", "-certdir", "-kubeconfig", "-server"] {
        assert!(help.stderr.contains(flag), "{flag}: {}", help.stderr);
    }
}

#[test]
fn retries_are_logged_without_a_verbosity() {
    let root = tempfile::tempdir().or_fail("a folder");
    std::fs::create_dir(root.path().join("dev")).or_fail("a folder");
    let finished = program()
        .args(["-ns", "a", "-cron", "b", "-url", "docker://127.0.0.1:1/c/d:e"])
        .env("CDI_WORKERS_CONTACT_SECONDS", "1")
        .env("CDI_WORKERS_TEST_ROOT", root.path())
        .run();
    let sentence = "Failed getting the digest of docker://127.0.0.1:1/c/d:e: ";
    finished.assert_failure(1, sentence);
    let message = std::fs::read_to_string(root.path().join("dev/termination-log"));
    assert!(message.or_fail("a message").starts_with(sentence));
    assert!(finished.stderr.contains(": retrying in 1 s ("), "{}", finished.stderr);
}
