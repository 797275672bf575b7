//! What may be changed over HTTP: nothing, unless that was allowed, and then by who shows the
//! token.
//!
//! A few changes that the control socket knows, and no others: whole files, with their keys, stay
//! there.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Path, State as Shared};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use evenkeel_control::{Client, ClientError, Request, look};
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use crate::accept::Peer;
use crate::served::{BUSY, Served, failed, no_such_router, refused};
use crate::token::NotAllowed;

/// Longest body of a request, bytes.
const BODY: usize = 64 << 10;
/// How long a request's body may take.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// A change that may be asked for.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case", deny_unknown_fields)]
enum Wanted {
    /// The rate of a link, as `ctl rate`.
    Rate { link: String, value: String },
    /// A knob of a link or of one of its classes, as `ctl set`.
    Set {
        link: String,
        knob: String,
        #[serde(default)]
        class: Option<String>,
        value: String,
    },
    /// A subscriber's caps times a number, for a while, as `ctl subscriber boost`.
    Boost { name: String, by: f64, for_s: u64 },
}

impl Wanted {
    /// In the words of the control socket.
    fn request(self, router: &mut Client) -> Result<Request, ClientError> {
        Ok(match self {
            Self::Rate { link, value } => Request::Rate { link, value },
            Self::Set { link, knob, class, value } => Request::Set { link, knob, class, value },
            Self::Boost { name, by, for_s } => {
                if !(1..=LONGEST_BOOST).contains(&for_s) {
                    let why = format!("for_s = {for_s}: 1 to {LONGEST_BOOST}");
                    return Err(ClientError::Refused(why));
                }
                let change = look::boost(router, &name, by)?;
                Request::Subscriber { change, for_ms: Some(for_s * 1_000) }
            }
        })
    }
}

/// Longest boost, s: a year.
const LONGEST_BOOST: u64 = 365 * 86_400;

/// `changes`: does what is asked for, if who asks may.
pub(crate) async fn change(
    Shared(served): Shared<Served>,
    Path(name): Path<String>,
    Extension(Peer(peer)): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    // Before anything else is looked at, the length of the body included.
    let told = headers.get(header::AUTHORIZATION).and_then(|told| told.to_str().ok());
    let told = told.and_then(|told| told.strip_prefix("Bearer "));
    if let Err(why) = served.allowed.check(told, peer) {
        return not_allowed(why);
    }
    let Some(router) = served.state.router(&name) else { return no_such_router() };
    let body = match timeout(BODY_WITHIN, to_bytes(body, BODY)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let text = format!("a change has at most {BODY} bytes");
            return failed(StatusCode::PAYLOAD_TOO_LARGE, &text);
        }
        Err(_) => return failed(StatusCode::REQUEST_TIMEOUT, "its body did not come in time"),
    };
    let wanted: Wanted = match serde_json::from_slice(&body) {
        Ok(wanted) => wanted,
        Err(error) => return failed(StatusCode::BAD_REQUEST, &format!("not a change: {error}")),
    };
    let socket = router.watched.socket.clone();
    let done = served.slowly(move || {
        let mut client = Client::connect(&socket)?;
        let request = wanted.request(&mut client)?;
        client.change(&request)
    });
    match done.await {
        Some(Ok(changes)) => {
            let what = changes.changes.join("; ");
            let what = if what.is_empty() { "nothing: it was so already" } else { &what };
            tracing::info!("router {name}: changed over HTTP by {peer}: {what}");
            Json(json!({ "router": name, "changes": changes.changes, "by": changes.by }))
                .into_response()
        }
        Some(Err(error)) => {
            tracing::warn!("router {name}: {peer} asked for a change, which was refused: {error}");
            refused(&error)
        }
        None => failed(StatusCode::SERVICE_UNAVAILABLE, BUSY),
    }
}

fn not_allowed(why: NotAllowed) -> Response {
    match why {
        NotAllowed::Nobody => failed(StatusCode::FORBIDDEN, &why.to_string()),
        NotAllowed::Stranger => {
            let mut response = failed(StatusCode::UNAUTHORIZED, &why.to_string());
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
            response
        }
    }
}
