//! PVCs of a cluster.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, Client};
use tokio::time::{Instant, interval, timeout_at};

use super::judge::{Filled, filled, judge};
use super::{Content, Place, Unavailable, Volume};
use crate::names;
use crate::token::Grant;

/// How long an upload server that is not ready is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked at meanwhile.
const INTERVAL: Duration = Duration::from_secs(1);

/// Where upload servers listen.
const PORT: u16 = 8443;

/// The PVCs of all namespaces.
pub(crate) struct Claims {
    client: Client,
}

impl Claims {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    pub(super) async fn find(&self, grant: &Grant) -> Result<Volume, Unavailable> {
        let deadline = Instant::now() + PATIENCE;
        match timeout_at(deadline, self.wait(grant)).await {
            Ok(found) => found,
            Err(_) => Err(Unavailable::TimedOut),
        }
    }

    async fn wait(&self, grant: &Grant) -> Result<Volume, Unavailable> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &grant.namespace);
        let mut ticks = interval(INTERVAL);
        loop {
            ticks.tick().await;
            if let Some((name, content)) = look(&api, &grant.pvc).await? {
                return Ok(Volume {
                    place: Place {
                        host: format!("{}.{}.svc", names::upload_service(&name), grant.namespace),
                        port: PORT,
                    },
                    content,
                });
            }
        }
    }
}

/// The PVC that is filled and with what, if its upload server is ready.
async fn look(api: &Api<PersistentVolumeClaim>, pvc: &str) -> Result<Option<(String, Content)>, Unavailable> {
    let claim = get(api, pvc)
        .await?
        .ok_or_else(|| Unavailable::NotFound(pvc.to_owned()))?;
    let (name, claim) = match filled(&claim) {
        Filled::Itself => (pvc.to_owned(), claim),
        Filled::NotYet => return Ok(None),
        // Also what an annotation says is checked before it becomes a part of a host's name.
        Filled::Prime(prime) if !names::is_subdomain(&prime) => {
            return Err(Unavailable::NoPrime(pvc.to_owned()));
        }
        Filled::Prime(prime) => {
            let claim = get(api, &prime).await?;
            (prime, claim.ok_or_else(|| Unavailable::NoPrime(pvc.to_owned()))?)
        }
    };
    Ok(judge(pvc, &claim)?.map(|content| (name, content)))
}

async fn get(
    api: &Api<PersistentVolumeClaim>,
    name: &str,
) -> Result<Option<PersistentVolumeClaim>, Unavailable> {
    api.get_opt(name).await.map_err(|error| {
        Unavailable::Api(match error {
            kube::Error::Api(status) => status.message,
            other => daemon::report::chain(&other),
        })
    })
}
