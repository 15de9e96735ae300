//! Imports; the test acts as CDI's controllers.

use std::time::Duration;

use program::command_line::FailedCommand;
use serde_json::json;

use crate::cluster::{PATIENCE, administrator, api, target};

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn an_import_is_followed_to_its_end() {
    let namespace = "follow";
    let cluster = administrator(namespace).await;
    api().create_data_volume(namespace, "disk", &json!({"http": {"url": "https://example.org/d"}}));
    let running = |progress: &str, restarts: u32, message: &str| {
        json!({"phase": "ImportInProgress", "progress": progress, "restartCount": restarts,
               "conditions": [{"type": "Running", "message": message}]})
    };
    let steps = [
        running("N/A", 0, "Pod is running"),
        running("45.20%", 0, "Pod is running"),
        running("45.20%", 1, "Unable to connect to http data source"),
        json!({"phase": "Succeeded", "progress": "100.0%", "conditions": [{"type": "Running", "message": "Import Complete"}]}),
    ];
    let mut next = steps.iter();
    let (mut told, dv) = (Vec::new(), target("dv/disk"));
    let followed = cluster.follow_import(&dv, PATIENCE, |progress| {
        told.push(progress.to_string());
        if let Some(status) = next.next() {
            api().set_data_volume_status(namespace, "disk", status);
        }
    });
    followed.await.unwrap();
    assert_eq!(
        told,
        [
            "Pending: waiting for CDI to create the claim",
            "ImportInProgress: Pod is running",
            "ImportInProgress 45.20 %: Pod is running",
            "ImportInProgress 45.20 %, restarted once: Unable to connect to http data source",
            "Succeeded 100.00 %, restarted once: Import Complete",
        ]
    );
    let failed = json!({"phase": "Failed", "conditions": [
        {"type": "Running", "reason": "ChecksumError", "message": "checksum mismatch: expected sha256:ab"},
    ]});
    api().set_data_volume_status(namespace, "disk", &failed);
    let error = cluster.follow_import(&dv, PATIENCE, |_| ()).await.unwrap_err();
    assert_eq!(error.to_string(), "dv/disk has failed: checksum mismatch: expected sha256:ab");
    assert_eq!(error.exit_reason().exit_code(), 6);
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn an_import_that_cannot_succeed_ends() {
    let namespace = "never";
    let cluster = administrator(namespace).await;
    let fails = |restarts: u32, message: &str| {
        json!({"phase": "ImportInProgress", "restartCount": restarts,
               "conditions": [{"type": "Running", "reason": "Error", "message": message}]})
    };
    let refused = "Unable to connect to http data source: expected status code 200, got 404. Status: 404 Not Found";
    let busy = "Unable to connect to http data source: expected status code 200, got 503. Status: 503 Service Unavailable";
    let untrusted = "https://h/d: TLS with h port 443: invalid peer certificate: UnknownIssuer";
    let small = "DataVolume too small to contain image";
    for (number, (steps, code, sentence)) in [
        (
            vec![fails(0, refused), fails(1, refused)],
            3,
            format!("has failed: {refused}; CDI retries until it is deleted"),
        ),
        (
            vec![fails(4, busy), fails(0, untrusted), fails(2, untrusted)],
            3,
            format!("has failed: {untrusted}; CDI retries"),
        ),
        (
            vec![fails(0, small)],
            5,
            format!("is too small: {small}; delete it, and import into a larger one, see --size"),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("disk-{number}");
        let source = json!({"http": {"url": "https://example.org/d"}});
        api().create_data_volume(namespace, &name, &source);
        let (last, dv) = (steps.len(), target(&format!("dv/{name}")));
        let (mut next, mut seen) = (steps.into_iter(), 0);
        let followed = cluster.follow_import(&dv, Duration::from_secs(10), |_| {
            if let Some(status) = next.next() {
                seen += 1;
                api().set_data_volume_status(namespace, &name, &status);
            }
        });
        let error = followed.await.unwrap_err();
        assert!(error.to_string().contains(&sentence), "{error}");
        assert_eq!((error.exit_reason().exit_code(), seen), (code, last), "{error}");
    }
}
