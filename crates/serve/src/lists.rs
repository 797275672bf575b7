//! Lists that can be long, as they are answered.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::{Path, Query, State as Shared};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::time::timeout;

use crate::list::{Kept, List, Listed, Wanted};
use crate::served::{BUSY, Served, WAIT, failed, no_such_router, refused};
use crate::state::Router;

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

impl Served {
    /// A page of a list of a router, which is read unless what was read last is fresh.
    async fn list<T: Listed>(&self, router: &Router, list: &List<T>, wanted: Wanted) -> Response {
        let Ok(mut held) = timeout(WAIT, Arc::clone(list).lock_owned()).await else {
            return failed(StatusCode::SERVICE_UNAVAILABLE, BUSY);
        };
        let fresh = held.kept.clone().filter(|kept| Instant::now() < kept.old_at);
        let kept = match fresh {
            Some(kept) => {
                drop(held);
                Ok(kept)
            }
            None => {
                let socket = router.watched.socket.clone();
                // What is held goes along: who hangs up does not make others read it once more.
                match self.slowly(move || held.read(&socket)).await {
                    Some(read) => read,
                    None => return failed(StatusCode::SERVICE_UNAVAILABLE, BUSY),
                }
            }
        };
        let kept = match kept {
            Ok(kept) => kept,
            Err(error) => return refused(&error),
        };
        let name = router.watched.name.clone();
        // Ordering many rows would keep the others waiting.
        let told = tokio::task::spawn_blocking(move || told(&kept, &name, &wanted)).await;
        told.unwrap_or_else(|error| {
            failed(StatusCode::INTERNAL_SERVER_ERROR, &format!("it could not be ordered: {error}"))
        })
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
