//! What is answered at which path. All but one is read; what may be changed is in `changes`.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Path, Query, Request, State as Shared};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use evenkeel_control::Client;
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::error::RecvError;

use crate::served::{BUSY, Served, failed, no_such_router};
use crate::state::State;
use crate::token::Token;
use crate::{changes, lists, metrics, past};

/// Windows that are told at most, the last hour of them.
const MAX_WINDOWS: usize = 3_600;
/// Windows of the past that are told at most.
const MAX_POINTS: usize = 2_000;

/// The page and what it needs: all of it in the program, nothing from elsewhere.
const FILES: [(&str, &str, &str); 8] = [
    ("/", "text/html; charset=utf-8", include_str!("../page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("../page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("../page/page.js")),
    ("/lists.js", "text/javascript; charset=utf-8", include_str!("../page/lists.js")),
    ("/more.js", "text/javascript; charset=utf-8", include_str!("../page/more.js")),
    ("/uPlot.js", "text/javascript; charset=utf-8", include_str!("../page/uPlot.iife.min.js")),
    ("/uPlot.css", "text/css; charset=utf-8", include_str!("../page/uPlot.min.css")),
    ("/uPlot.LICENSE", "text/plain; charset=utf-8", include_str!("../page/uPlot.LICENSE")),
];

/// Scripts and data from here alone: also a name that came over a socket could start nothing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

pub(crate) fn routes(state: Arc<State>, hosts: Vec<String>, token: Option<Token>) -> Router {
    let served = Served::new(state, hosts, token);
    let mut routes = Router::new();
    for (path, kind, text) in FILES {
        routes =
            routes.route(path, get(move || async move { ([(header::CONTENT_TYPE, kind)], text) }));
    }
    routes
        .route("/metrics", get(all_metrics))
        .route("/metrics/subscribers", get(lists::subscriber_metrics))
        .route("/api/v1/openapi.json", get(openapi))
        .route("/api/v1/routers", get(routers))
        .route("/api/v1/routers/{router}/state", get(state_of))
        .route("/api/v1/routers/{router}/subscribers", get(lists::subscribers))
        .route("/api/v1/routers/{router}/windows", get(windows))
        .route("/api/v1/routers/{router}/marks", get(marks))
        .route("/api/v1/routers/{router}/alarms", get(alarms))
        .route("/api/v1/routers/{router}/history", get(history))
        .route("/api/v1/routers/{router}/explain", get(explain))
        .route("/api/v1/routers/{router}/flows", get(lists::flows))
        .route("/api/v1/routers/{router}/changes", post(changes::change))
        .route("/api/v1/events", get(events))
        .fallback(|| async { failed(StatusCode::NOT_FOUND, "there is nothing at this path") })
        .layer(middleware::from_fn_with_state(served.clone(), guard))
        .with_state(served)
}

/// Refuses names that are not ours, and puts on every answer what browsers should know.
async fn guard(Shared(served): Shared<Served>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let mut response = if host.is_some_and(|host| is_ours(host, &served.hosts)) {
        next.run(request).await
    } else {
        let text = "this name is not known here: use the address, or allow the name with --host";
        failed(StatusCode::MISDIRECTED_REQUEST, text)
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // Also the page: it must fit the program that it came from.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Whether the name in a request means this machine: an address, `localhost` or a name that was
/// allowed. A page from elsewhere can have its own name point here, but not an address.
fn is_ours(host: &str, hosts: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(name, _)| name),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok();
    is_address(name)
        || is_address(host)
        || name.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|known| name.eq_ignore_ascii_case(known))
}

async fn all_metrics(Shared(served): Shared<Served>) -> Response {
    metrics::answer(metrics::families(&served.state))
}

async fn openapi() -> Response {
    let text = include_str!("openapi.json");
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

async fn routers(Shared(served): Shared<Served>) -> Json<Value> {
    let router = |router: &crate::state::Router| {
        let (status, name, restarts) = router.read(|seen| {
            let name = seen.snapshot.as_ref().map(|snapshot| snapshot.router.clone());
            (seen.status.clone(), name, seen.restarts)
        });
        let mut told = json!({
            "router": router.watched.name, "name": name, "restarts": restarts,
        });
        if let (Value::Object(told), Ok(Value::Object(status))) =
            (&mut told, serde_json::to_value(&status))
        {
            told.extend(status);
        }
        told
    };
    let interval_s = served.state.interval.as_secs_f64();
    let routers: Vec<Value> = served.state.routers.iter().map(router).collect();
    Json(json!({ "interval_s": interval_s, "routers": routers }))
}

async fn state_of(Shared(served): Shared<Served>, Path(name): Path<String>) -> Response {
    let Some(router) = served.state.router(&name) else { return no_such_router() };
    match router.read(|seen| seen.snapshot.clone()) {
        Some(snapshot) => Json(&*snapshot).into_response(),
        None => failed(StatusCode::SERVICE_UNAVAILABLE, "this router has not answered yet"),
    }
}

/// Which windows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Last {
    /// The last so many.
    #[serde(default = "some")]
    last: usize,
}

fn some() -> usize {
    300
}

async fn windows(
    Shared(served): Shared<Served>,
    Path(name): Path<String>,
    Query(Last { last }): Query<Last>,
) -> Response {
    let Some(router) = served.state.router(&name) else { return no_such_router() };
    let last = last.min(MAX_WINDOWS);
    let windows: Vec<_> = router.read(|seen| {
        let from = seen.windows.len().saturating_sub(last);
        seen.windows.range(from..).cloned().collect()
    });
    let windows: Vec<&_> = windows.iter().map(|window| &**window).collect();
    Json(json!({ "router": name, "windows": windows })).into_response()
}

async fn marks(Shared(served): Shared<Served>, Path(name): Path<String>) -> Response {
    let Some(router) = served.state.router(&name) else { return no_such_router() };
    let marks: Vec<_> = router.read(|seen| seen.marks.iter().cloned().collect());
    Json(json!({ "router": name, "marks": marks })).into_response()
}

async fn alarms(Shared(served): Shared<Served>, Path(name): Path<String>) -> Response {
    let Some(router) = served.state.router(&name) else { return no_such_router() };
    let alarms: Vec<_> = router.read(|seen| seen.alarms.known().cloned().collect());
    Json(json!({ "router": name, "alarms": alarms })).into_response()
}

/// Which part of the past.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Span {
    from_ms: u64,
    #[serde(default = "for_ever")]
    to_ms: u64,
    /// How many windows at most.
    #[serde(default = "some")]
    points: usize,
}

fn for_ever() -> u64 {
    u64::MAX
}

async fn history(
    Shared(served): Shared<Served>,
    Path(name): Path<String>,
    Query(Span { from_ms, to_ms, points }): Query<Span>,
) -> Response {
    let Some(router) = served.state.router(&name) else { return no_such_router() };
    let Some(file) = router.file.clone() else {
        let text = "nothing is kept: start evenkeel serve with --history FOLDER";
        return failed(StatusCode::NOT_FOUND, text);
    };
    let points = points.clamp(1, MAX_POINTS);
    let read = move || past::read(&file, from_ms, to_ms, points);
    match served.slowly(read).await {
        Some(Ok(windows)) => Json(json!({ "router": name, "windows": windows })).into_response(),
        Some(Err(error)) => failed(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        None => failed(StatusCode::SERVICE_UNAVAILABLE, BUSY),
    }
}

/// Which flow.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    flow: String,
    link: Option<String>,
}

async fn explain(
    Shared(served): Shared<Served>,
    Path(name): Path<String>,
    Query(About { flow, link }): Query<About>,
) -> Response {
    let ask = move |router: &mut Client| router.explain(&flow, link.as_deref());
    let told = |text: String| {
        let lines: Vec<&str> = text.lines().collect();
        json!({ "router": name, "lines": lines })
    };
    served.ask(&name, ask, told).await
}

async fn events(Shared(served): Shared<Served>) -> Response {
    let Ok(place) = Arc::clone(&served.streams).try_acquire_owned() else {
        return failed(StatusCode::SERVICE_UNAVAILABLE, "too many event streams: try again later");
    };
    let start: (_, OwnedSemaphorePermit) = (served.state.events(), place);
    let events = stream::unfold(start, |(mut events, place)| async move {
        loop {
            match events.recv().await {
                Ok(event) => {
                    let told = Event::default().event(event.kind).data(&event.text);
                    return Some((Ok::<_, Infallible>(told), (events, place)));
                }
                // It was too slow, and goes on with what is there now.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_strangers_are_not_ours() {
        let hosts = ["router.lan".to_owned()];
        for ours in
            ["127.0.0.1", "127.0.0.1:7717", "[::1]:7717", "::1", "localhost:80", "Router.LAN"]
        {
            assert!(is_ours(ours, &hosts), "{ours}");
        }
        for other in ["example.org", "evil.example:7717", "router.lan.example", "", "[", "1.2.3"] {
            assert!(!is_ours(other, &hosts), "{other}");
        }
    }

    #[test]
    fn the_page_asks_for_nothing_from_elsewhere_and_is_small() {
        let size: usize = FILES.iter().map(|(_, _, text)| text.len()).sum();
        assert!(size <= 300 << 10, "{size} bytes");
        for (path, _, text) in &FILES[..5] {
            assert!(!text.contains("//cdn") && !text.contains("src=\"http"), "{path}");
        }
    }
}
