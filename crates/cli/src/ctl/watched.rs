//! `evenkeel ctl trace` and `evenkeel ctl capture`: packets on their way through a running router.
//!
//! The router tells what it sees; whoever asks keeps it. So a capture takes no disk of the router's
//! process, and ends with this command.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{process, thread};

use evenkeel_control::{Client, ClientError, Request};
use evenkeel_ports::sys;
use evenkeel_router::watch::{Point, Sighting};
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use serde_json::json;

use crate::args::{CaptureArgs, WatchArgs};
use crate::failure::{Failure, Outcome};
use crate::out::closed;

/// How often the router is asked what it has seen.
const ASK: Duration = Duration::from_millis(100);

/// Each stage of packets, as it happens.
pub(crate) fn trace(socket: &Path, args: &WatchArgs, json: bool) -> Outcome {
    let mut packets = HashSet::new();
    let most = args.packets.unwrap_or(u64::MAX);
    let mut out = io::stdout().lock();
    let mut broken = None;
    let missed = watch(socket, args, None, |seen| {
        // Of the last packet the stages until its end are told, too; of others nothing more.
        let new = (seen.flow.clone(), seen.arrival_ns);
        if packets.len() as u64 >= most && !packets.contains(&new) {
            return false;
        }
        packets.insert(new);
        let line = if json { format!("{}\n", json!(seen)) } else { line(seen) };
        let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        broken = written.err();
        let ended = ends(seen.point) && packets.len() as u64 >= most;
        broken.is_none() && !ended
    })?;
    if let Some(error) = broken {
        return closed(Err(error));
    }
    told_missed(missed);
    Ok(0)
}

fn ends(stage: Point) -> bool {
    !matches!(stage, Point::Received | Point::Waits | Point::Queued)
}

fn line(seen: &Sighting) -> String {
    let second = seen.time_ns as f64 / 1e9;
    let stage = match seen.point {
        Point::Received => "received by",
        Point::Waits => "waits at",
        Point::Queued => "given to link",
        Point::Sent => "left link",
        Point::Dropped => "DROPPED at",
        Point::Kernel => "to the kernel at",
    };
    let flow = if seen.flow.is_empty() { "(not IP)" } else { &seen.flow };
    let reason = seen.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
    format!("{second:.6} {flow} {stage} {}: {}{reason}\n", seen.port, seen.text)
}

/// Frames into a pcapng file, with what became of each as its comment.
pub(crate) fn capture(socket: &Path, args: &CaptureArgs) -> Outcome {
    let name = args.file.display();
    let failed = |error: io::Error| {
        Failure::new(1, format!("{name}: {error}; what was written before can be read"))
    };
    let out: Box<dyn Write> = if args.file == Path::new("-") {
        Box::new(io::stdout())
    } else {
        // Packets of others are in it.
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        Box::new(
            options
                .open(&args.file)
                .map_err(|error| Failure::new(2, format!("{name}: {error}")))?,
        )
    };
    let mut file = Capture::new(BufWriter::new(out), args.snap).map_err(failed)?;
    let most = args.watch.packets.unwrap_or(u64::MAX);
    let mut broken = None;
    let missed = watch(socket, &args.watch, Some(args.snap), |seen| {
        broken = file.write(seen).err();
        broken.is_none() && file.packets < most
    })?;
    if let Some(error) = broken {
        return match error.kind() {
            io::ErrorKind::BrokenPipe => Ok(0),
            _ => Err(failed(error)),
        };
    }
    eprintln!("{} packets", file.packets);
    told_missed(missed);
    Ok(0)
}

fn told_missed(missed: u64) {
    if missed > 0 {
        eprintln!("{missed} more came too fast to be told: narrow the filter");
    }
}

/// Has the router watch, and hands over what it sees until that is enough: the time is over, or
/// `see` says so. How many it had no room for.
fn watch(
    socket: &Path,
    args: &WatchArgs,
    snap: Option<u32>,
    mut see: impl FnMut(&Sighting) -> bool,
) -> Result<u64, Failure> {
    let mut client = Client::connect(socket)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let id = (since.as_nanos() as u64) ^ (u64::from(process::id()) << 32);
    client.send(&Request::Watch {
        id,
        filter: args.filter.clone(),
        port: args.port.clone(),
        drops: args.drops,
        snap,
    })?;
    let end = args.within.map(|within| Instant::now() + within);
    let mut missed = 0;
    loop {
        let over = end.is_some_and(|end| Instant::now() >= end);
        let sightings = client.sightings(id)?;
        missed += sightings.missed;
        if over || !sightings.seen.iter().all(&mut see) {
            // It would end by itself.
            let _: Result<(), ClientError> = client.send(&Request::Unwatch);
            return Ok(missed);
        }
        thread::sleep(ASK);
    }
}

/// A pcapng file with an interface for each port.
struct Capture {
    writer: PcapNgWriter<BufWriter<Box<dyn Write>>>,
    ports: Vec<String>,
    snap: u32,
    /// What is added to the router's times: the distance of the time of day.
    epoch: i64,
    packets: u64,
}

impl Capture {
    fn new(out: BufWriter<Box<dyn Write>>, snap: u32) -> io::Result<Self> {
        let writer = PcapNgWriter::new(out).map_err(io_error)?;
        let epoch = sys::realtime_minus_monotonic();
        Ok(Self { writer, ports: Vec::new(), snap, epoch, packets: 0 })
    }

    fn interface(&mut self, port: &str) -> io::Result<u32> {
        if let Some(at) = self.ports.iter().position(|known| known == port) {
            return Ok(at as u32);
        }
        self.ports.push(port.to_owned());
        let block = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: self.snap,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(port)),
                // Times are in nanoseconds.
                InterfaceDescriptionOption::IfTsResol(9),
            ],
        };
        self.writer.write_pcapng_block(block).map_err(io_error)?;
        Ok(self.ports.len() as u32 - 1)
    }

    fn write(&mut self, seen: &Sighting) -> io::Result<()> {
        let interface_id = self.interface(&seen.port)?;
        let digits = seen.bytes.as_bytes().chunks_exact(2);
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
        let data: Vec<u8> = digits.filter_map(byte).collect();
        let reason = seen.reason.as_ref().map_or_else(String::new, |why| format!("{why}: "));
        let direction = if seen.point == Point::Sent { 2 } else { 1 };
        let block = EnhancedPacketBlock {
            interface_id,
            timestamp: Duration::from_nanos(seen.time_ns.saturating_add_signed(self.epoch)),
            original_len: seen.length,
            data: Cow::Owned(data),
            options: vec![
                EnhancedPacketOption::Flags(direction),
                EnhancedPacketOption::Comment(Cow::Owned(format!("{reason}{}", seen.text))),
            ],
        };
        self.writer.write_pcapng_block(block).map_err(io_error)?;
        self.writer.get_mut().flush()?;
        self.packets += 1;
        Ok(())
    }
}

fn io_error(error: pcap_file::PcapError) -> io::Error {
    match error {
        pcap_file::PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}
