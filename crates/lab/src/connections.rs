//! TCP connections that come and go, of this machine's kernel: one thread opens and fills them, one
//! accepts and empties them.
//!
//! Each has a source port of its own, as in virtual time, and the congestion control and segment
//! size that the scenario names. It is done when the receiver has closed it after the last byte: a
//! round trip after that was sent, as where its acknowledgement counts.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_core::{Bytes, Nanos};
use evenkeel_ports::sys::{self, NetNs, TcpInfo, lock};
use evenkeel_report::{ConnectionRow, FlowRow};
use evenkeel_scenario::{Congestion, Scenario, Traffic, TrafficKind};
use evenkeel_world::{SourceKind, source_of};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::LabError;
use crate::flow::{FlowSpec, open};
use crate::stopping::{PATIENCE, Stopping};

/// What is written or read at once.
const BLOCK: usize = 64 << 10;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4_096;
/// A connection that is opened later than this was not offered as the scenario says.
const LATE: Nanos = Nanos::from_millis(20);

/// The connections of a `[[traffic]]`, both ends. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Connections {
    told: Arc<Mutex<Told>>,
    source: Stopping,
    _sink: Stopping,
}

/// What became of them.
#[derive(Debug, Default)]
struct Told {
    rows: Vec<FlowRow>,
    windows: Vec<ConnectionRow>,
    late: u64,
    worst_late: Nanos,
}

/// How each is opened.
#[derive(Clone, Debug)]
struct Opening {
    spec: FlowSpec,
    congestion: Congestion,
    /// The largest segment, bytes of payload without options.
    segment: u32,
}

impl Connections {
    /// Opens a listening socket in the receiver's namespace, and connections from the sender's when
    /// they are due; times count from `start`, `CLOCK_MONOTONIC`. With `every`, tells what each
    /// thinks of its way as often. `None`: the packets of this traffic are made otherwise.
    ///
    /// # Errors
    /// A namespace, a socket, values out of range, or a congestion control that the kernel has not.
    pub(crate) fn start(
        spec: &FlowSpec,
        (scenario, traffic): (&Scenario, &Traffic),
        start: Nanos,
        every: Option<Nanos>,
    ) -> Result<Option<Self>, LabError> {
        let (TrafficKind::TcpFlows { congestion, .. } | TrafficKind::Users { congestion, .. }) =
            traffic.kind
        else {
            return Ok(None);
        };
        let stream = u64::from(spec.number);
        let SourceKind::Connections(demand) = source_of(scenario, traffic, stream, start) else {
            return Ok(None);
        };
        let refused = |why: String| LabError::refused(&traffic.place, &traffic.name, &why);
        let due = demand.connections().map_err(|error| refused(error.to_string()))?;
        let headers = if spec.destination.is_ipv6() { 60 } else { 40 };
        let segment = traffic.size.0.saturating_sub(headers) as u32;
        let opening = Opening { spec: spec.clone(), congestion, segment };
        open(spec, &spec.from, || opening.socket())
            .map_err(|error| refused(format!("{error}; congestion controls here: {}", known())))?;
        let listener = open(spec, &spec.to, || listen(spec))?;
        let sink = Stopping::spawn(&format!("sink {}", spec.name), move |stop| {
            // Without it nothing is accepted, and all connections stay unfinished.
            let _ = empty(listener, stop);
        })?;
        let namespace = NetNs::open(&spec.from).map_err(|source| LabError::System {
            what: format!("enter the network namespace of {}", spec.from),
            source,
        })?;
        let told = Arc::<Mutex<Told>>::default();
        let shared = Arc::clone(&told);
        let end = start.saturating_add(scenario.duration);
        let source = Stopping::spawn(&format!("send {}", spec.name), move |stop| {
            if namespace.enter().is_err() {
                return;
            }
            let Ok(poll) = Poll::new() else { return };
            let mut sender = Sender {
                open: HashMap::new(),
                told: Told::default(),
                block: vec![0; BLOCK],
                times: (start, end),
                poll,
                opening,
            };
            sender.run(due, every, stop);
            *lock(&shared) = sender.told;
        })?;
        Ok(Some(Self { told, source, _sink: sink }))
    }

    /// Ends those that are under way.
    pub(crate) fn stop(&mut self) {
        self.source.stop();
    }

    /// A row for each that began; after the end, once.
    pub(crate) fn rows(&self) -> Vec<FlowRow> {
        std::mem::take(&mut lock(&self.told).rows)
    }

    /// How each saw its way, window by window; after the end, once.
    pub(crate) fn windows(&self) -> Vec<ConnectionRow> {
        std::mem::take(&mut lock(&self.told).windows)
    }

    /// What is to be said of them: a note, and a warning where they were not offered in time.
    pub(crate) fn report(&self, name: &str) -> (String, Option<String>) {
        let told = lock(&self.told);
        let done = told.rows.iter().filter(|row| row.end_s.is_some()).count();
        let (begun, late, worst) = (told.rows.len(), told.late, told.worst_late);
        let note =
            format!("{name}: {begun} connections of this machine's kernel, {done} of them done.");
        let warning = (late * 50 > begun as u64).then(|| {
            format!(
                "{name} fell behind its schedule: {late} of {begun} connections were opened more \
                 than {LATE} late (up to {worst}); the machine is too slow for this scenario"
            )
        });
        (note, warning)
    }
}

/// The congestion controls that the kernel has.
fn known() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

impl Opening {
    /// A socket with the settings of all.
    fn socket(&self) -> io::Result<Socket> {
        let six = self.spec.destination.is_ipv6();
        let domain = if six { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_tcp_congestion(self.congestion.name().as_bytes())?;
        socket.set_tcp_mss(self.segment)?;
        let tos = u32::from(self.spec.dscp) << 2;
        if six {
            socket.set_tclass_v6(tos)?;
        } else {
            socket.set_tos_v4(tos)?;
        }
        Ok(socket)
    }

    /// Where flow number `flow` comes from and where it goes. The listener has one port.
    fn ends(&self, flow: u64) -> (SocketAddr, SocketAddr) {
        let (source, mut destination) = self.spec.ends(flow);
        destination.set_port(self.spec.destination.port());
        (source, destination)
    }

    fn connect(&self, flow: u64) -> io::Result<TcpStream> {
        let (source, destination) = self.ends(flow);
        let socket = self.socket()?;
        socket.bind(&SockAddr::from(source))?;
        match socket.connect(&SockAddr::from(destination)) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(TcpStream::from_std(socket.into())),
        }
    }
}

/// A connection that is under way.
struct Open {
    stream: TcpStream,
    row: FlowRow,
    /// Payload that is not written yet.
    left: u64,
}

struct Sender {
    opening: Opening,
    poll: Poll,
    open: HashMap<usize, Open>,
    told: Told,
    block: Vec<u8>,
    /// Start and end of the run.
    times: (Nanos, Nanos),
}

impl Sender {
    /// Seconds since the start of the run.
    fn seconds(&self, at: Nanos) -> f64 {
        at.saturating_sub(self.times.0).as_secs_f64()
    }

    fn run(
        &mut self,
        due: impl Iterator<Item = (Nanos, Bytes)>,
        every: Option<Nanos>,
        stop: &AtomicBool,
    ) {
        let mut due = due.zip(0_u64..).peekable();
        let mut events = Events::with_capacity(1_024);
        let mut window = every.map(|every| self.times.0.saturating_add(every));
        while !stop.load(Ordering::Relaxed) {
            let now = sys::monotonic_now();
            while let Some(((at, size), flow)) = due.next_if(|((at, _), _)| *at <= now) {
                let late = now.saturating_sub(at);
                self.told.late += u64::from(late > LATE);
                self.told.worst_late = self.told.worst_late.max(late);
                self.begin(flow, size.0, now);
            }
            if window.is_some_and(|window| window <= now) {
                self.look(now);
                window = every.map(|every| now.saturating_add(every));
            }
            let next = due.peek().map_or(Nanos::MAX, |((at, _), _)| *at);
            let next = next.min(window.unwrap_or(Nanos::MAX)).saturating_sub(now);
            let wait = Duration::from_nanos(next.0).min(PATIENCE);
            if self.poll.poll(&mut events, Some(wait)).is_err() {
                // Interrupted.
                continue;
            }
            for event in &events {
                self.advance(event.token().0);
            }
        }
        let unfinished: Vec<_> = self.open.keys().copied().collect();
        unfinished.into_iter().for_each(|token| self.end(token, None));
    }

    fn begin(&mut self, flow: u64, size: u64, now: Nanos) {
        let (source, destination) = self.opening.ends(flow);
        let row = FlowRow {
            traffic: self.opening.spec.name.clone(),
            flow,
            transport: "tcp".to_owned(),
            source: source.to_string(),
            destination: destination.to_string(),
            start_s: self.seconds(now),
            until_s: self.seconds(self.times.1),
            asked_bytes: Some(size),
            ..FlowRow::default()
        };
        let token = flow as usize;
        let stream = self.opening.connect(flow).and_then(|mut stream| {
            let both = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(token), both).map(|()| stream)
        });
        match stream {
            Ok(stream) => {
                self.open.insert(token, Open { stream, row, left: size });
            }
            // Asked for, and never done.
            Err(_) => self.told.rows.push(row),
        }
    }

    /// Something can be done for a connection.
    fn advance(&mut self, token: usize) {
        let Some(open) = self.open.get_mut(&token) else { return };
        match fill(open, &mut self.block) {
            Ok(()) => self.end(token, Some(sys::monotonic_now())),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.end(token, None),
        }
    }

    /// A connection is done at a time, or will never be.
    fn end(&mut self, token: usize, at: Option<Nanos>) {
        let Some(Open { stream, mut row, .. }) = self.open.remove(&token) else { return };
        let info = TcpInfo::of(&stream).unwrap_or_default();
        row.sent_packets = Some(u64::from(info.data_segments));
        row.lost_packets = info.retransmitted.into();
        row.rtt_us = (info.rtt_us > 0).then(|| info.rtt_us.into());
        row.delivered_bytes = info.acked.min(row.asked_bytes.unwrap_or_default());
        if let Some(at) = at {
            row.end_s = Some(self.seconds(at));
            row.until_s = self.seconds(at);
            row.delivered_bytes = row.asked_bytes.unwrap_or_default();
        }
        self.told.rows.push(row);
    }

    /// What each connection thinks of its way.
    fn look(&mut self, now: Nanos) {
        let t_s = self.seconds(now);
        let traffic = &self.opening.spec.name;
        let rows = self.open.values().filter_map(|open| {
            let info = TcpInfo::of(&open.stream).ok()?;
            Some(ConnectionRow {
                traffic: traffic.clone(),
                flow: open.row.flow,
                t_s,
                cwnd_bytes: u64::from(info.cwnd) * u64::from(info.segment),
                rtt_us: (info.rtt_us > 0).then(|| info.rtt_us.into()),
                retransmitted: info.retransmitted.into(),
            })
        });
        self.told.windows.extend(rows);
    }
}

/// Writes what fits; once all is written, waits for the other end. Done if it has closed.
fn fill(open: &mut Open, block: &mut [u8]) -> io::Result<()> {
    if let Some(error) = open.stream.take_error()? {
        return Err(error);
    }
    while open.left > 0 {
        let most = block.len().min(usize::try_from(open.left).unwrap_or(usize::MAX));
        match open.stream.write(&block[..most]) {
            Ok(written) => open.left -= written as u64,
            Err(error) if error.kind() == ErrorKind::NotConnected => {
                return Err(ErrorKind::WouldBlock.into());
            }
            Err(error) => return Err(error),
        }
        if open.left == 0 {
            open.stream.shutdown(Shutdown::Write)?;
        }
    }
    // The receiver sends nothing.
    open.stream.read(block).map(|_| ())
}

fn listen(spec: &FlowSpec) -> io::Result<TcpListener> {
    let mut own = spec.destination;
    let six = own.is_ipv6();
    // Somebody else's address for each connection.
    if spec.party.as_ref().is_some_and(|party| !party.sends) {
        own.set_ip(if six { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() });
    }
    let domain = if six { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(own))?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// Accepts connections, reads them to their ends and closes them.
fn empty(mut listener: TcpListener, stop: &AtomicBool) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let listening = Token(usize::MAX);
    poll.registry().register(&mut listener, listening, Interest::READABLE)?;
    let (mut streams, mut next) = (HashMap::new(), 0);
    let mut events = Events::with_capacity(1_024);
    let mut block = vec![0; BLOCK];
    while !stop.load(Ordering::Relaxed) {
        if poll.poll(&mut events, Some(PATIENCE)).is_err() {
            continue;
        }
        for event in &events {
            if event.token() != listening {
                let ended = streams
                    .get_mut(&event.token())
                    .is_some_and(|stream: &mut TcpStream| drain(stream, &mut block));
                if ended {
                    streams.remove(&event.token());
                }
                continue;
            }
            while let Ok((mut stream, _)) = listener.accept() {
                let token = Token(next);
                next += 1;
                if poll.registry().register(&mut stream, token, Interest::READABLE).is_ok() {
                    streams.insert(token, stream);
                }
            }
        }
    }
    Ok(())
}

/// Reads what is there. Whether the connection has come to its end.
fn drain(stream: &mut TcpStream, block: &mut [u8]) -> bool {
    loop {
        match stream.read(block) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}
