//! Tests of updates, with an API server on which another writer is faster.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Response, StatusCode};
use kube::client::Body;
use serde_json::json;
use tower::service_fn;

use super::*;

#[test]
fn only_two_annotations_of_an_object_change() {
    let other = json!({ "status": { "conditions": [7, 0.5, null] }, "kind": "DataImportCron" });
    for annotations in [json!(null), json!({ "mine": "stays", DESIRED_DIGEST: "sha256:0" })] {
        let mut object = other.clone();
        object["metadata"] = json!({ "resourceVersion": "7", "annotations": annotations });
        let mut found: CronObject = serde_json::from_value(object.clone()).unwrap();
        assert!(found.record_check("sha256:1"));
        assert!(!found.record_check("sha256:1"));
        let changed = serde_json::to_value(&found).unwrap();
        let time = &changed["metadata"]["annotations"][LAST_TIME];
        assert!(time.is_string());
        object["metadata"]["annotations"][LAST_TIME] = time.clone();
        object["metadata"]["annotations"][DESIRED_DIGEST] = json!("sha256:1");
        assert_eq!(changed, object);
    }
}

/// Creates a DataImportCron without annotations, on which the first `refusals` updates conflict
/// with another writer. Also returns the methods of all requests.
fn cron(refusals: usize) -> (DataImportCron, Arc<Mutex<Vec<Method>>>) {
    let methods = Arc::<Mutex<Vec<Method>>>::default();
    let seen = Arc::clone(&methods);
    let service = service_fn(move |request: Request<Body>| {
        let mut seen = seen.lock().unwrap();
        seen.push(request.method().clone());
        let updates = seen.iter().filter(|method| **method == Method::PUT).count();
        let is_late = request.method() == Method::PUT && updates <= refusals;
        let (status, body) = if is_late {
            let status = json!({ "status": "Failure", "message": "it changed", "reason": "Conflict", "code": 409 });
            (StatusCode::CONFLICT, status)
        } else {
            (StatusCode::OK, json!({ "metadata": { "resourceVersion": "7" } }))
        };
        let mut answer = Response::new(Body::from(body.to_string().into_bytes()));
        *answer.status_mut() = status;
        async move { Ok::<_, Infallible>(answer) }
    });
    let cron = DataImportCron {
        client: Client::new(service, "default"),
        namespace: "default".to_owned(),
        name: "cron".to_owned(),
    };
    (cron, methods)
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(future)
}

#[test]
fn a_conflicting_update_is_retried_a_limited_number_of_times() {
    let (late, methods) = run(async {
        let (cron, methods) = cron(2);
        (cron.report_digest("sha256:1").await, methods)
    });
    assert!(late.unwrap());
    let expected = [Method::GET, Method::PUT];
    assert_eq!(
        *methods.lock().unwrap(),
        expected.iter().cycle().take(6).cloned().collect::<Vec<_>>()
    );

    let (never, methods) = run(async {
        let (cron, methods) = cron(usize::MAX);
        (cron.report_digest("sha256:1").await, methods)
    });
    let sentence =
        "Failed updating DataImportCron, cronNamespace default cronName cron: it changed";
    assert_eq!(never.unwrap_err(), sentence);
    assert_eq!(methods.lock().unwrap().len(), 2 * ATTEMPTS as usize);
}
