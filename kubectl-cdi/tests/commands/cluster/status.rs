//! The status table, and names for completion.

use k8s_openapi::jiff::Timestamp;
use kubectl_cdi::cluster::status::format_table;
use serde_json::json;
use testkit::fail::OrFail;

use crate::cluster::{administrator, api, create_pod, record, set_pod, target, wanted};

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn everything_that_cdi_fills_is_in_the_status() {
    let namespace = "status";
    let cluster = administrator(namespace).await;
    assert_eq!(
        format_table(&cluster.list_status(None).await.unwrap()),
        "NAME  PHASE  PROGRESS  RATE  LEFT  RESTARTS  SIZE  SOURCE  AGE\n"
    );
    cluster.create_volume(&wanted("dv/one")).await.unwrap();
    cluster.create_volume(&wanted("pvc/two")).await.unwrap();
    api().create_upload_pvc(namespace, "one", &[]);
    api().create_pvc(namespace, "data-of-others", &[]);
    api().create_upload_pvc(namespace, "prime-1", &[]);
    let status = json!({
        "phase": "ImportInProgress",
        "progress": "45.20%",
        "restartCount": 3,
        "conditions": [{"type": "Running", "message": "Unable to connect\u{1b}[2J"}],
    });
    api().set_data_volume_status(namespace, "one", &status);
    for (name, message) in [("importer-one", "Back-off restarting"), ("else", "not ours")] {
        create_pod(namespace, name);
        record(namespace, ("Pod", name), ("Warning", "BackOff", message), "2026-01-01T00:00:00Z");
    }
    let mut rows = cluster.list_status(None).await.unwrap();
    for row in &mut rows {
        assert!(row.age.take().unwrap() < 60);
    }
    assert_eq!(
        format_table(&rows),
        "NAME     PHASE             PROGRESS  RATE  LEFT  RESTARTS  SIZE      SOURCE  AGE\n\
         dv/one   ImportInProgress  45.20 %   -     -     3         1.00 GiB  upload  -\n  \
           Unable to connect\\u{1b}[2J\n  \
           2026-01-01T00:00:00Z Pod/importer-one BackOff: Back-off restarting\n\
         pvc/two  Pending           -         -     -     0         1.00 GiB  upload  -\n"
    );
    let started = Timestamp::from_second(Timestamp::now().as_second() - 100).or_fail("a time");
    let container = json!({
        "name": "importer", "image": "i", "imageID": "", "ready": true, "restartCount": 3,
        "state": {"running": {"startedAt": started.to_string()}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
    });
    set_pod(namespace, "importer-one", &json!({"containerStatuses": [container]}));
    let one = cluster.list_status(Some(&target("dv/one"))).await.unwrap();
    assert_eq!((one.len(), one[0].bytes), (1, Some(1 << 30)));
    // 45.20 % of 1 GiB in 100 s, with a tolerance for the time of the request.
    let rate = one[0].rate.unwrap();
    assert!((4_000_000..=4_853_313).contains(&rate), "{rate}");
    let left = one[0].seconds_left.unwrap();
    assert!((122..200).contains(&left), "{left}");
    let failure = one[0].failure.as_ref().unwrap();
    assert_eq!((&*failure.reason, &failure.exit_code), ("OOMKilled", &json!(137)));
    let table = format_table(&one);
    assert!(table.contains("exit code 137; raise the memory limit of CDI's pods"), "{table}");
    let none = cluster.list_status(Some(&target("dv/none"))).await.unwrap_err();
    assert_eq!(
        none.to_string(),
        "dv/none not found in namespace status: check the name and --namespace"
    );
    let names = cluster.list_targets().await;
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["dv/one", "pvc/data-of-others", "pvc/one", "pvc/prime-1", "pvc/two"]);
}
