//! Lists that can be long, as they are answered.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::{Path, Query, State as Shared};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use evenkeel_router::Snapshot;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use crate::list::{Kept, List, Listed, MOST, Wanted, hundred};
use crate::metrics;
use crate::served::{BUSY, Served, WAIT, failed, no_such_router, refused};
use crate::state::{Router, Status};

/// `flows`: from a sample of the packets of each link.
pub(crate) async fn flows(
    Shared(served): Shared<Served>,
    Path(name): Path<String>,
    Query(wanted): Query<Wanted>,
) -> Response {
    let Some(router) = served.state.router(&name) else { return no_such_router() };
    served.list(router, &router.lists.flows, wanted).await
}

/// `subscribers`: what each had of late, and what limits it.
pub(crate) async fn subscribers(
    Shared(served): Shared<Served>,
    Path(name): Path<String>,
    Query(wanted): Query<Wanted>,
) -> Response {
    let Some(router) = served.state.router(&name) else { return no_such_router() };
    served.list(router, &router.lists.subscribers, wanted).await
}

/// How many subscribers have metrics.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Top {
    #[serde(default = "hundred")]
    top: usize,
}

/// `metrics/subscribers`: those of each router that sent most. Apart from the other metrics, which
/// have labels from configurations alone, and cost a router nothing.
pub(crate) async fn subscriber_metrics(
    Shared(served): Shared<Served>,
    Query(Top { top }): Query<Top>,
) -> Response {
    let mut all = Vec::new();
    for router in &served.state.routers {
        let has_tree = |snapshot: &Arc<Snapshot>| snapshot.links.iter().any(|l| l.tree.is_some());
        let answers = router.read(|seen| {
            matches!(seen.status, Status::Answers { .. })
                && seen.snapshot.as_ref().is_some_and(has_tree)
        });
        // Who does not answer has no metrics; that is told by `evenkeel_up`.
        if answers && let Ok(kept) = served.kept(router, &router.lists.subscribers).await {
            all.push((router.watched.name.clone(), kept));
        }
    }
    metrics::answer(metrics::of_subscribers(&all, top.min(MOST)))
}

impl Served {
    /// A page of a list of a router.
    async fn list<T: Listed>(&self, router: &Router, list: &List<T>, wanted: Wanted) -> Response {
        let kept = match self.kept(router, list).await {
            Ok(kept) => kept,
            Err(response) => return response,
        };
        let name = router.watched.name.clone();
        // Ordering many rows would keep the others waiting.
        let told = tokio::task::spawn_blocking(move || told(&kept, &name, &wanted)).await;
        told.unwrap_or_else(|error| {
            failed(StatusCode::INTERNAL_SERVER_ERROR, &format!("it could not be ordered: {error}"))
        })
    }

    /// A list of a router, which is read unless what was read last is fresh. `Err`: what is
    /// answered instead.
    async fn kept<T: Listed>(&self, router: &Router, list: &List<T>) -> Result<Kept<T>, Response> {
        let Ok(mut held) = timeout(WAIT, Arc::clone(list).lock_owned()).await else {
            return Err(failed(StatusCode::SERVICE_UNAVAILABLE, BUSY));
        };
        let fresh = held.kept.clone().filter(|kept| Instant::now() < kept.old_at);
        let read = match fresh {
            Some(kept) => {
                drop(held);
                return Ok(kept);
            }
            None => {
                let socket = router.watched.socket.clone();
                // What is held goes along: who hangs up does not make others read it once more.
                self.slowly(move || held.read(&socket)).await
            }
        };
        match read {
            Some(read) => read.map_err(|error| refused(&error)),
            None => Err(failed(StatusCode::SERVICE_UNAVAILABLE, BUSY)),
        }
    }
}

/// A page as it is answered.
fn told<T: Listed>(kept: &Kept<T>, router: &str, wanted: &Wanted) -> Response {
    let (page, matching) = match kept.page(wanted) {
        Ok(page) => page,
        Err(why) => return failed(StatusCode::BAD_REQUEST, &why),
    };
    let told = json!({
        "router": router,
        "time_ms": kept.time_ms,
        "total": kept.rows.len(),
        "matching": matching,
        "offset": wanted.offset,
        T::NAME: page,
    });
    Json(told).into_response()
}
