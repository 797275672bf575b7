//! Connections, bounded: in number, in the time for a request's headers, in the time that what was
//! sent may stay unread, and in their life.
//!
//! When all places are taken, who waits for nothing but the next request gives up his to whoever
//! comes, first who has done so the longest: thousands of connections that ask for nothing, or for
//! one letter each second, keep nobody out.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, Response, header};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// Connections at the same time. Further ones take the places of those that ask for nothing, or
/// wait in the kernel's queue until one ends.
pub const MAX_CONNECTIONS: usize = 256;
/// Of them, those that read the event stream; more are told to come later.
pub const MAX_STREAMS: usize = 64;
/// Connections that the kernel keeps for us until they have a place, if it may have so many.
pub(crate) const WAITING: i32 = 4_096;
/// How long the headers of a request may take, and a connection may be silent between two.
pub const HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// How long what was sent may stay unread.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// After which an answer that is still not read has no right to its connection's place any more;
/// it goes on while nobody else wants it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
/// How long a connection may live: who reads one byte each second does not keep its place. Browsers
/// connect to event streams again by themselves.
const LIFE: Duration = Duration::from_secs(3_600);
/// Longest head of a request, bytes.
const HEAD: usize = 16 << 10;
/// Between two looks for a place, where nobody can give up his.
const LOOK: Duration = Duration::from_millis(200);

/// Who is at the other end of a connection, as requests carry it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Serves everybody who comes, for ever.
pub(crate) async fn accept(socket: TcpListener, routes: Router) -> Infallible {
    let listener = loop {
        match socket.try_clone().and_then(tokio::net::TcpListener::from_std) {
            Ok(listener) => break listener,
            // No descriptor for the moment.
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    };
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let taken = Arc::new(Taken::default());
    let mut number = 0;
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Out of descriptors or memory: let others finish instead of spinning.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let place = taken.place(&free).await;
        let _ = stream.set_nodelay(true);
        let _ = sockopt::set_tcp_user_timeout(&stream, READ_WITHIN.as_millis() as u32);
        number += 1;
        let held = Held { number, taken: Arc::clone(&taken), place };
        let task = tokio::spawn(connection(stream, Peer(peer), routes.clone(), held));
        taken.by(number, task.abort_handle());
    }
}

/// Serves one connection until it ends.
async fn connection(stream: TcpStream, peer: Peer, routes: Router, held: Held) {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADERS_WITHIN).max_buf_size(HEAD);
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        held.taken.does(held.number, Doing::Answers);
        let answer = routes.call(request);
        let done = Done { number: held.number, taken: Arc::clone(&held.taken) };
        async move {
            let answer: Response<Body> = answer.await?;
            let kind = answer.headers().get(header::CONTENT_TYPE);
            if kind.is_some_and(|kind| kind == "text/event-stream") {
                done.taken.does(done.number, Doing::Streams);
            }
            Ok::<_, Infallible>(answer.map(|body| Answer { body, _done: done }))
        }
    });
    // What breaks off is the client's affair.
    let _ = timeout(LIFE, http.serve_connection(TokioIo::new(stream), service)).await;
}

/// What a connection does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Doing {
    /// It waits for a request, or for the rest of one.
    Waits,
    /// A request is being answered.
    Answers,
    /// It is told what happens. Those are counted on their own.
    Streams,
}

/// A connection that has a place.
#[derive(Debug)]
struct Connection {
    doing: Doing,
    since: Instant,
    task: AbortHandle,
}

/// The connections that have places, by their numbers.
#[derive(Debug, Default)]
struct Taken(Mutex<HashMap<u64, Connection>>);

impl Taken {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, as soon as there is one.
    async fn place(&self, free: &Arc<Semaphore>) -> OwnedSemaphorePermit {
        loop {
            if free.available_permits() == 0 {
                let mut taken = self.lock();
                if let Some(number) = gives_up(&taken, Instant::now())
                    && let Some(connection) = taken.remove(&number)
                {
                    connection.task.abort();
                }
            }
            // What was ended gives its place back when its task is dropped.
            let place = timeout(LOOK, Arc::clone(free).acquire_owned()).await;
            if let Ok(place) = place {
                return place.expect("it is never closed");
            }
        }
    }

    /// A connection was given to a task, which has not run yet: it begins by waiting.
    fn by(&self, number: u64, task: AbortHandle) {
        let connection = Connection { doing: Doing::Waits, since: Instant::now(), task };
        self.lock().insert(number, connection);
    }

    fn does(&self, number: u64, doing: Doing) {
        if let Some(connection) = self.lock().get_mut(&number) {
            (connection.doing, connection.since) = (doing, Instant::now());
        }
    }
}

/// Which connection gives up its place to another: the one that has waited longest, else one whose
/// answer has taken too long.
fn gives_up(taken: &HashMap<u64, Connection>, now: Instant) -> Option<u64> {
    let longest = |doing, least| {
        let all = taken.iter().filter(|(_, one)| one.doing == doing);
        let all = all.filter(|(_, one)| now.saturating_duration_since(one.since) >= least);
        // Numbers go up: of two that began in one instant it is the earlier.
        all.min_by_key(|(number, one)| (one.since, **number)).map(|(number, _)| *number)
    };
    longest(Doing::Waits, Duration::ZERO).or_else(|| longest(Doing::Answers, ANSWERED_WITHIN))
}

/// A connection's place, which it gives back when it ends.
struct Held {
    number: u64,
    taken: Arc<Taken>,
    #[expect(dead_code, reason = "it is held")]
    place: OwnedSemaphorePermit,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.taken.lock().remove(&self.number);
    }
}

/// A request: when it is dropped the connection waits for the next.
struct Done {
    number: u64,
    taken: Arc<Taken>,
}

impl Drop for Done {
    fn drop(&mut self) {
        self.taken.does(self.number, Doing::Waits);
    }
}

/// What is answered; the request is done when all of it was taken to be sent.
struct Answer {
    body: Body,
    _done: Done,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken_by(list: &[(u64, Doing, u64)], begun: Instant) -> Arc<Taken> {
        let taken = Arc::new(Taken::default());
        for (number, doing, after_s) in list {
            let task = tokio::spawn(async {}).abort_handle();
            let since = begun + Duration::from_secs(*after_s);
            taken.lock().insert(*number, Connection { doing: *doing, since, task });
        }
        taken
    }

    #[tokio::test]
    async fn who_waits_longest_gives_up_his_place_and_streams_never_do() {
        let begun = Instant::now();
        let list = [
            (1, Doing::Streams, 0),
            (2, Doing::Answers, 1),
            (3, Doing::Waits, 90),
            (4, Doing::Waits, 80),
            (5, Doing::Answers, 100),
        ];
        let taken = taken_by(&list, begun);
        let mut order = Vec::new();
        loop {
            let number = gives_up(&taken.lock(), begun + ANSWERED_WITHIN * 2);
            let Some(number) = number else { break };
            order.push(number);
            taken.lock().remove(&number);
        }
        assert_eq!(order, [4, 3, 2]);
        // What is answered waits again.
        drop(Done { number: 5, taken: Arc::clone(&taken) });
        assert_eq!(gives_up(&taken.lock(), begun), Some(5));
    }

    #[tokio::test]
    async fn a_place_is_free_at_once_where_somebody_waits() {
        let free = Arc::new(Semaphore::new(1));
        let taken = Arc::new(Taken::default());
        let place = taken.place(&free).await;
        let held = Held { number: 1, taken: Arc::clone(&taken), place };
        let task = tokio::spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        taken.by(1, task.abort_handle());
        let _place = timeout(HEADERS_WITHIN, taken.place(&free)).await.expect("a place");
        assert!(taken.lock().is_empty());
    }
}
