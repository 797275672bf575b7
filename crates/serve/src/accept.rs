//! Connections, bounded: in number, in the time for a request's headers, in the time that what was
//! sent may stay unread, and in their life.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Connections at the same time. Further ones wait in the kernel's queue until one ends.
pub const MAX_CONNECTIONS: usize = 256;
/// Of them, those that read the event stream; more are told to come later.
pub const MAX_STREAMS: usize = 64;
/// How long the headers of a request may take, and a connection may be silent between two.
pub const HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// How long what was sent may stay unread.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// How long a connection may live: who reads one byte each second does not keep its place. Browsers
/// connect to event streams again by themselves.
const LIFE: Duration = Duration::from_secs(3_600);
/// Longest head of a request, bytes.
const HEAD: usize = 16 << 10;

/// Serves everybody who comes, for ever.
pub(crate) async fn accept(socket: TcpListener, routes: Router) -> Infallible {
    let listener = loop {
        match socket.try_clone().and_then(tokio::net::TcpListener::from_std) {
            Ok(listener) => break listener,
            // No descriptor for the moment.
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    };
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors or memory: let others finish instead of spinning.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let _ = sockopt::set_tcp_user_timeout(&stream, READ_WITHIN.as_millis() as u32);
        let service = TowerToHyperService::new(routes.clone());
        tokio::spawn(async move {
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEADERS_WITHIN).max_buf_size(HEAD);
            // What breaks off is the client's affair.
            let _ = timeout(LIFE, http.serve_connection(TokioIo::new(stream), service)).await;
            drop(place);
        });
    }
}
