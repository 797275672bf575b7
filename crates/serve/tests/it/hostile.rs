//! Slow, many and hostile clients, after which a good one is answered.

use std::collections::VecDeque;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_serve::{HEADERS_WITHIN, MAX_CONNECTIONS, MAX_STREAMS};
use rustix::process::{Resource, getrlimit};

use crate::bed::{PATIENCE, Setup, connect, event, get, raw};

const STREAM: &[u8] = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn nonsense_is_refused_and_everybody_else_is_served() {
    let setup = Setup::new();
    let _router = setup.router();
    let server = setup.serve();
    let at = server.address();
    let head = "HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    for path in [
        "/../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/api/v1/routers/%2e%2e/state",
        "/api/v1/routers/%ff%fe/state",
        "/api/v1/routers/nobody/windows",
        "//",
        "/page.js/..",
    ] {
        let (status, reply) = raw(at, format!("GET {path} {head}").as_bytes());
        assert!((400..500).contains(&status), "{path}: {reply}");
        assert!(!reply.contains("root:"), "{reply}");
    }
    for query in ["last=-1", "last=x", "last=99999999999999999999999", "other=1"] {
        let path = format!("/api/v1/routers/edge/windows?{query}");
        assert_eq!(get(at, &path).0, 400, "{query}");
    }
    for request in [
        b"\xff\xfe\xfd garbage\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        [b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ".to_vec(), vec![b'x'; 64 << 10]].concat(),
        b"GET / HTTP/1.1\r\nHost: \xff\xff\r\nConnection: close\r\n\r\n".to_vec(),
    ] {
        let (status, reply) = raw(at, &request);
        assert!(status == 0 || (400..500).contains(&status), "{status}: {reply}");
    }
    assert_eq!(get(at, "/metrics").0, 200);
}

/// More connections than there are places, which send a little and then nothing: they lose their
/// places, and who comes later is served.
#[test]
fn slow_clients_lose_their_places() {
    let setup = Setup::new();
    let _router = setup.router();
    let server = setup.serve();
    let begun = Instant::now();
    let slow: Vec<TcpStream> = (0..MAX_CONNECTIONS + 50)
        .map(|_| {
            let mut stream = connect(server.address());
            stream.write_all(b"GET / HTTP/1.1\r\nHost: loc").unwrap();
            stream
        })
        .collect();
    assert_eq!(get(server.address(), "/metrics").0, 200);
    assert!(begun.elapsed() < HEADERS_WITHIN + PATIENCE);
    let mut first = &slow[0];
    let mut rest = Vec::new();
    let _ = first.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
}

/// Ten thousand connections, held as far as this process may have descriptors: some say nothing,
/// some begin a request, some send bytes that are none. Who comes in between is answered at once,
/// and who listens goes on being told.
#[test]
fn ten_thousand_connections_keep_nobody_out() {
    const ATTEMPTS: usize = 10_000;
    let setup = Setup::new();
    let _router = setup.router();
    let server = setup.serve();
    let mut listens = connect(server.address());
    listens.write_all(STREAM).unwrap();
    let mut lines = BufReader::new(listens);
    event(&mut lines, "window");
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // The server's and this process's other ones are among them.
    let most = usize::try_from(descriptors).unwrap_or(ATTEMPTS).saturating_sub(600).max(300);
    let mut held = VecDeque::new();
    let begun = Instant::now();
    let mut good = 0;
    for n in 0..ATTEMPTS {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let begins: &[u8] = match n % 4 {
            0 => b"",
            1 => b"GET /metrics HTTP/1.1\r\nHost: loc",
            2 => b"G",
            _ => b"\xff\xfe\x00",
        };
        // It may have lost its place already.
        let _ = stream.write_all(begins);
        held.push_back(stream);
        if held.len() > most {
            held.pop_front();
        }
        if n % 500 == 499 {
            assert_eq!(get(server.address(), "/metrics").0, 200, "after {n}");
            good += 1;
        }
    }
    // None of them had to wait until others had been silent for too long.
    assert!(begun.elapsed() < HEADERS_WITHIN * good, "{:?}", begun.elapsed());
    event(&mut lines, "window");
    event(&mut lines, "window");
}

/// A letter each moment keeps a connection only while nobody else wants its place.
#[test]
fn letters_that_trickle_in_keep_nobody_out() {
    let setup = Setup::new();
    let _router = setup.router();
    let server = setup.serve();
    let mut slow: Vec<TcpStream> =
        (0..MAX_CONNECTIONS).map(|_| connect(server.address())).collect();
    for letter in b"GET / HT" {
        for stream in &mut slow {
            let _ = stream.write_all(&[*letter]);
        }
        assert_eq!(get(server.address(), "/").0, 200);
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn streams_are_counted_on_their_own_and_everybody_else_is_served() {
    let setup = Setup::new();
    let _router = setup.router();
    let server = setup.serve();
    let listen = || {
        let mut stream = connect(server.address());
        stream.write_all(STREAM).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        (stream, head)
    };
    let streams: Vec<_> = (0..MAX_STREAMS).map(|_| listen()).collect();
    assert!(streams.iter().all(|(_, head)| head == b"HTTP/1.1 200"));
    assert_eq!(&listen().1, b"HTTP/1.1 503");
    assert_eq!(get(server.address(), "/metrics").0, 200);
    drop(streams);
    crate::bed::until("their places are free", || &listen().1 == b"HTTP/1.1 200");
}

/// Who asks and never reads holds up nobody, and less than a stream's places are taken by him.
#[test]
fn who_reads_nothing_holds_up_nobody() {
    let setup = Setup::new();
    let _router = setup.router();
    let server = setup.serve();
    let mut listens = connect(server.address());
    listens.write_all(STREAM).unwrap();
    let mut lines = BufReader::new(listens);
    event(&mut lines, "window");
    let ask = |what: &str| {
        let mut stream = connect(server.address());
        // The same again and again on one connection: answers pile up.
        let request = format!("GET {what} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        for _ in 0..100 {
            if stream.write_all(request.as_bytes()).is_err() {
                break;
            }
        }
        stream
    };
    let deaf: Vec<_> = (0..20)
        .map(|n| ask(["/api/v1/events", "/metrics", "/page.js", "/uPlot.js"][n % 4]))
        .collect();
    let begun = Instant::now();
    for _ in 0..5 {
        event(&mut lines, "window");
        assert_eq!(get(server.address(), "/metrics").0, 200);
    }
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    drop(deaf);
}
