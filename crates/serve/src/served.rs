//! What answers share: the state, how much is done at the same time, and how failures are told.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use evenkeel_control::{Client, ClientError};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::accept::MAX_STREAMS;
use crate::state::State;
use crate::token::{Allowed, Token};

/// Answers that read files or ask routers at the same time.
const SLOW: usize = 2;
/// How long such an answer waits for its turn.
pub(crate) const WAIT: Duration = Duration::from_secs(10);
/// What those are told that wait for longer.
pub(crate) const BUSY: &str = "too many ask for this at the same time: try again later";

/// What answers share.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) state: Arc<State>,
    pub(crate) streams: Arc<Semaphore>,
    slow: Arc<Semaphore>,
    pub(crate) hosts: Arc<[String]>,
    pub(crate) allowed: Arc<Allowed>,
}

impl Served {
    pub(crate) fn new(state: Arc<State>, hosts: Vec<String>, token: Option<Token>) -> Self {
        let streams = Arc::new(Semaphore::new(MAX_STREAMS));
        let (slow, allowed) = (Arc::new(Semaphore::new(SLOW)), Arc::new(Allowed::to(token)));
        Self { state, streams, slow, hosts: hosts.into(), allowed }
    }

    /// What a router answers to a question that takes it time, as it is `told`.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        name: &str,
        ask: impl FnOnce(&mut Client) -> Result<T, ClientError> + Send + 'static,
        told: impl FnOnce(T) -> Value,
    ) -> Response {
        let Some(router) = self.state.router(name) else { return no_such_router() };
        let socket = router.watched.socket.clone();
        match self.slowly(move || ask(&mut Client::connect(&socket)?)).await {
            Some(Ok(answer)) => Json(told(answer)).into_response(),
            Some(Err(error)) => refused(&error),
            None => failed(StatusCode::SERVICE_UNAVAILABLE, BUSY),
        }
    }

    /// Does what takes time beside the others' answers, a few at a time; `None`: too many want to.
    pub(crate) async fn slowly<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let place = Arc::clone(&self.slow).acquire_owned();
        let place = tokio::time::timeout(WAIT, place).await.ok()?.ok()?;
        let done = tokio::task::spawn_blocking(move || (work(), place)).await;
        done.ok().map(|(done, _place)| done)
    }
}

pub(crate) fn failed(status: StatusCode, text: &str) -> Response {
    (status, Json(json!({ "error": text }))).into_response()
}

/// A router did not answer as hoped.
pub(crate) fn refused(error: &ClientError) -> Response {
    let status = match error {
        ClientError::Refused(_) => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    failed(status, &error.to_string())
}

pub(crate) fn no_such_router() -> Response {
    failed(StatusCode::NOT_FOUND, "no router of this name: /api/v1/routers lists them")
}
