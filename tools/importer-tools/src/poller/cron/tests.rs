//! Tests of patches, with an API server on which another writer is faster.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Response, StatusCode};
use kube::client::Body;
use tower::service_fn;

use super::*;

/// Returns operation and path of each step.
fn steps(changes: &Value) -> Vec<String> {
    let step = |change: &Value| format!("{} {}", change["op"], change["path"]).replace('"', "");
    changes.as_array().unwrap().iter().map(step).collect()
}

#[test]
fn annotations_are_added_one_by_one_and_the_map_only_where_there_is_none() {
    let mut found = CronMetadata { annotations: None, resource_version: "7".to_owned() };
    let all = [
        "test /metadata/resourceVersion",
        "add /metadata/annotations",
        "add /metadata/annotations/cdi.kubevirt.io~1storage.import.lastCronTime",
        "add /metadata/annotations/cdi.kubevirt.io~1storage.import.sourceDesiredDigest",
    ];
    assert_eq!(steps(&build_patch(&found, Some("sha256:1"))), all);
    found.annotations = Some(BTreeMap::new());
    assert_eq!(steps(&build_patch(&found, None)), all[2..3]);
}

/// Creates a DataImportCron without annotations, on which the first `refusals` patches conflict
/// with another writer. Also returns the methods of all requests.
fn cron(refusals: usize) -> (DataImportCron, Arc<Mutex<Vec<Method>>>) {
    let methods = Arc::<Mutex<Vec<Method>>>::default();
    let seen = Arc::clone(&methods);
    let service = service_fn(move |request: Request<Body>| {
        let mut seen = seen.lock().unwrap();
        seen.push(request.method().clone());
        let patches = seen.iter().filter(|method| **method == Method::PATCH).count();
        let is_late = request.method() == Method::PATCH && patches <= refusals;
        let (status, body) = if is_late {
            let status = json!({ "status": "Failure", "message": "test failed", "reason": "Invalid", "code": 422 });
            (StatusCode::UNPROCESSABLE_ENTITY, status)
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
fn a_conflicting_patch_is_retried_a_limited_number_of_times() {
    let (late, methods) = run(async {
        let (cron, methods) = cron(2);
        (cron.report_digest("sha256:1").await, methods)
    });
    assert!(late.unwrap());
    let expected = [Method::GET, Method::PATCH];
    assert_eq!(
        *methods.lock().unwrap(),
        expected.iter().cycle().take(6).cloned().collect::<Vec<_>>()
    );

    let (never, methods) = run(async {
        let (cron, methods) = cron(usize::MAX);
        (cron.report_digest("sha256:1").await, methods)
    });
    let sentence =
        "Failed updating DataImportCron, cronNamespace default cronName cron: test failed";
    assert_eq!(never.unwrap_err(), sentence);
    assert_eq!(methods.lock().unwrap().len(), 2 * ATTEMPTS as usize);
}
