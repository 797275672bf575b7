//! Flows of real programs: iperf3 and D-ITG.
//!
//! What they send is not stamped by the lab, so rows of their classes have no offered rate and no
//! end-to-end delay; the routers' counters and the programs' own reports stand.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use evenkeel_core::Nanos;
use evenkeel_ports::sys;
use evenkeel_report::{ConnectionRow, FlowRow};
use evenkeel_scenario::{Tool, Traffic, TrafficKind};
use evenkeel_world::payload;

use crate::LabError;
use crate::flow::{FlowSpec, packet_rate};
use crate::shell::Program;

/// First port of D-ITG's signalling; each flow has its own receiver and so its own port.
const DITG_SIGNALLING: u32 = 20_000;
/// From the server's start to the client's: a server that does not listen yet refuses.
const SERVER_LEAD: Duration = Duration::from_millis(300);

/// Server and client of one flow. Dropping it ends both.
#[derive(Debug)]
pub(crate) struct ToolFlow {
    name: String,
    tool: Tool,
    server: Child,
    client: Child,
    output: PathBuf,
}

impl ToolFlow {
    /// Starts the server now and the client when the flow begins; times count from `start`. What
    /// the client prints goes into `folder`. It tells of its connections after each `every`, if
    /// that is given.
    ///
    /// # Errors
    /// The namespaces, or a program that cannot be started.
    pub(crate) fn start(
        spec: &FlowSpec,
        traffic: &Traffic,
        start: Nanos,
        every: Option<Nanos>,
        folder: &Path,
    ) -> Result<Self, LabError> {
        let (server, client) = match traffic.tool {
            Tool::DItg => ditg(spec, traffic),
            Tool::Iperf3 | Tool::Evenkeel => iperf3(spec, traffic, every),
        };
        let output = folder.join(format!("{}.out", spec.name));
        let begin = start.saturating_add(traffic.start).saturating_sub(sys::monotonic_now());
        let wait = Duration::from_nanos(begin.0).max(SERVER_LEAD);
        let server = spawn(&spec.to, &server, Duration::ZERO, None)?;
        let client = spawn(&spec.from, &client, wait, Some(&output));
        match client {
            Ok(client) => {
                Ok(Self { name: spec.name.clone(), tool: traffic.tool, server, client, output })
            }
            Err(error) => {
                end(server);
                Err(error)
            }
        }
    }

    /// Gives the client a moment to end by itself and to report, then ends both.
    pub(crate) fn stop(&mut self) {
        for _ in 0..100 {
            if !matches!(self.client.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        for child in [&mut self.client, &mut self.server] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn printed(&self) -> String {
        fs::read_to_string(&self.output).unwrap_or_default()
    }

    /// What the program says of each of its flows; none where it says nothing that is understood.
    pub(crate) fn rows(&self, traffic: &Traffic, spec: &FlowSpec) -> Vec<FlowRow> {
        match self.tool {
            Tool::Iperf3 => iperf3_rows(&self.printed(), traffic, spec).unwrap_or_default(),
            Tool::DItg | Tool::Evenkeel => Vec::new(),
        }
    }

    /// How its TCP connections saw their way.
    pub(crate) fn connections(&self, traffic: &Traffic) -> Vec<ConnectionRow> {
        match self.tool {
            Tool::Iperf3 => iperf3_connections(&self.printed(), traffic).unwrap_or_default(),
            Tool::DItg | Tool::Evenkeel => Vec::new(),
        }
    }

    /// What the program says about the flow, in one sentence.
    pub(crate) fn report(&self) -> String {
        let text = self.printed();
        let told = match self.tool {
            Tool::Iperf3 => iperf3_report(&text),
            Tool::DItg | Tool::Evenkeel => None,
        };
        let last = || {
            text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it printed nothing")
        };
        format!("{}: {}", self.name, told.unwrap_or_else(|| last().trim().to_owned()))
    }
}

impl Drop for ToolFlow {
    fn drop(&mut self) {
        for child in [&mut self.client, &mut self.server] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Starts a command inside a namespace after a while. `exec` keeps the process number, so killing
/// it kills the program.
fn spawn(
    namespace: &str,
    words: &[String],
    wait: Duration,
    output: Option<&Path>,
) -> Result<Child, LabError> {
    let failed = |source| LabError::System { what: format!("start {}", words[0]), source };
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("sleep {:.3}; exec \"$@\"", wait.as_secs_f64()), "sh"])
        .args(words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(path) = output {
        command.stdout(File::create(path).map_err(failed)?);
    }
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    sys::die_with_parent(&mut command);
    sys::spawn_in_netns(&mut command, namespace).map_err(failed)?;
    command.spawn().map_err(failed)
}

/// Length of the flow, in seconds and as the scenario has it.
fn seconds(traffic: &Traffic) -> f64 {
    traffic.stop.saturating_sub(traffic.start).as_secs_f64()
}

fn iperf3(spec: &FlowSpec, traffic: &Traffic, every: Option<Nanos>) -> (Vec<String>, Vec<String>) {
    let address = spec.destination.ip().to_string();
    let port = traffic.port.to_string();
    let server = ["iperf3", "-s", "-1", "-B", &address, "-p", &port].map(str::to_owned).to_vec();
    let whole_seconds = (seconds(traffic).ceil() as u64).max(1).to_string();
    let tos = (u32::from(spec.dscp) << 2).to_string();
    let (until, amount) = match traffic.kind {
        TrafficKind::Tcp { bytes: Some(bytes), .. } => {
            ("-n", (bytes.0 * u64::from(traffic.flows)).to_string())
        }
        _ => ("-t", whole_seconds),
    };
    let mut client: Vec<_> =
        ["iperf3", "-c", &address, "-p", &port, until, &amount, "-S", &tos, "-J"]
            .map(str::to_owned)
            .into();
    if let Some(every) = every {
        let interval = every.as_secs_f64().clamp(IPERF3_INTERVALS[0], IPERF3_INTERVALS[1]);
        client.extend(["-i".into(), interval.to_string()]);
    }
    if traffic.flows > 1 {
        client.extend(["-P".into(), traffic.flows.to_string()]);
    }
    if spec.party.as_ref().is_some_and(|party| party.sends) {
        client.extend(["-B".into(), spec.source.ip().to_string()]);
    }
    let (rate, payload) = payload_rate(spec, traffic);
    if let TrafficKind::Tcp { congestion, .. } = traffic.kind {
        // A segment's share of the packet without options, which is what the maximum segment size
        // means.
        let segment =
            traffic.size.0.saturating_sub(if spec.destination.is_ipv6() { 60 } else { 40 });
        client.extend(["-C".into(), congestion.name().into(), "-M".into(), segment.to_string()]);
        return (server, client);
    }
    client.extend(["-b".into(), format!("{rate:.0}")]);
    if !traffic.tcp {
        client.extend(["-u".into(), "-l".into(), payload.to_string()]);
    }
    (server, client)
}

/// Bits of payload per second, and payload of a packet, that make the scenario's rate and size of
/// IP packets.
fn payload_rate(spec: &FlowSpec, traffic: &Traffic) -> (f64, u64) {
    let payload = traffic.size.0.saturating_sub(payload::headers(spec.destination.ip()));
    (traffic.rate.0 as f64 * payload as f64 / traffic.size.0 as f64, payload)
}

fn ditg(spec: &FlowSpec, traffic: &Traffic) -> (Vec<String>, Vec<String>) {
    let signalling = (DITG_SIGNALLING + spec.number).to_string();
    let server = ["ITGRecv", "-Sp", &signalling].map(str::to_owned).to_vec();
    let (_, payload) = payload_rate(spec, traffic);
    let distribution = match traffic.kind {
        TrafficKind::Poisson => "-E",
        _ => "-C",
    };
    let client = [
        "ITGSend",
        "-a",
        &spec.destination.ip().to_string(),
        "-Sdp",
        &signalling,
        "-rp",
        &traffic.port.to_string(),
        // No source port: D-ITG 2.8.1 then binds a socket of no address family, and fails.
        "-T",
        "UDP",
        "-b",
        &(u32::from(spec.dscp) << 2).to_string(),
        distribution,
        &format!("{:.3}", packet_rate(traffic.rate, traffic.size)),
        "-c",
        &payload.to_string(),
        "-t",
        &format!("{:.0}", seconds(traffic) * 1e3),
    ];
    (server, client.map(str::to_owned).to_vec())
}

/// The sums of iperf3's JSON report.
fn iperf3_report(text: &str) -> Option<String> {
    let report: serde_json::Value = serde_json::from_str(text).ok()?;
    if let Some(error) = report["error"].as_str() {
        return Some(format!("iperf3 says: {error}"));
    }
    let end = &report["end"];
    let received = [&end["sum_received"], &end["sum"]].into_iter().find(|sum| sum.is_object())?;
    let rate = received["bits_per_second"].as_f64()? / 1e6;
    Some(match (received["lost_packets"].as_u64(), received["packets"].as_u64()) {
        (Some(lost), Some(packets)) => {
            format!("iperf3 says: {rate:.2} Mbit/s of payload, {lost} of {packets} packets lost")
        }
        _ => format!("iperf3 says: {rate:.2} Mbit/s of payload received"),
    })
}

/// The streams of iperf3's JSON report as rows. A stream begins with its traffic; how much each of
/// several carries is not asked for.
fn iperf3_rows(text: &str, traffic: &Traffic, spec: &FlowSpec) -> Option<Vec<FlowRow>> {
    let report: serde_json::Value = serde_json::from_str(text).ok()?;
    let begin = traffic.start.as_secs_f64();
    let asked = match traffic.kind {
        TrafficKind::Tcp { bytes, .. } if traffic.flows == 1 => bytes.map(|bytes| bytes.0),
        _ => None,
    };
    let row = |(flow, stream): (usize, &serde_json::Value)| {
        let (udp, tcp) = (&stream["udp"], &stream["receiver"]);
        let told = if tcp.is_object() { tcp } else { udp };
        let (seconds, bytes) = (told["end"].as_f64()?, told["bytes"].as_u64()?);
        let port = report["start"]["connected"][flow]["local_port"].as_u64()?;
        let (lost, packets) = (udp["lost_packets"].as_u64(), udp["packets"].as_u64());
        // With UDP it tells of the bytes that it sent.
        let part = packets.zip(lost).map(|(sent, lost)| 1.0 - lost as f64 / sent.max(1) as f64);
        let delivered = (bytes as f64 * part.unwrap_or(1.0)).round() as u64;
        let done = asked.is_some_and(|asked| delivered >= asked);
        Some(FlowRow {
            traffic: traffic.name.clone(),
            flow: flow as u64,
            transport: if tcp.is_object() { "tcp" } else { "udp" }.to_owned(),
            source: SocketAddr::new(spec.source.ip(), u16::try_from(port).ok()?).to_string(),
            destination: spec.destination.to_string(),
            start_s: begin,
            end_s: done.then_some(begin + seconds),
            until_s: begin + seconds,
            asked_bytes: asked,
            delivered_bytes: delivered,
            sent_packets: packets,
            lost_packets: lost.or_else(|| stream["sender"]["retransmits"].as_u64())?,
            timeouts: None,
            rtt_us: stream["sender"]["mean_rtt"].as_f64().filter(|rtt| *rtt > 0.0),
        })
    };
    Some(report["end"]["streams"].as_array()?.iter().enumerate().filter_map(row).collect())
}

/// What iperf3's JSON report says of its TCP streams after each interval. They begin with their
/// traffic.
fn iperf3_connections(text: &str, traffic: &Traffic) -> Option<Vec<ConnectionRow>> {
    let report: serde_json::Value = serde_json::from_str(text).ok()?;
    let begin = traffic.start.as_secs_f64();
    let mut again = Vec::new();
    let mut rows = Vec::new();
    for interval in report["intervals"].as_array()? {
        let streams = interval["streams"].as_array()?;
        again.resize(streams.len(), 0);
        for (flow, (stream, again)) in streams.iter().zip(&mut again).enumerate() {
            // Streams of UDP have no window.
            let (Some(cwnd), Some(end)) = (stream["snd_cwnd"].as_u64(), stream["end"].as_f64())
            else {
                continue;
            };
            *again += stream["retransmits"].as_u64().unwrap_or(0);
            rows.push(ConnectionRow {
                traffic: traffic.name.clone(),
                flow: flow as u64,
                t_s: begin + end,
                cwnd_bytes: cwnd,
                rtt_us: stream["rtt"].as_f64().filter(|rtt| *rtt > 0.0),
                retransmitted: *again,
            });
        }
    }
    Some(rows)
}

/// Between two reports of iperf3, seconds.
const IPERF3_INTERVALS: [f64; 2] = [0.1, 60.0];
/// Streams that one iperf3 has at most.
const IPERF3_STREAMS: u32 = 128;

/// Why a flow is nothing that its tool can send.
pub(crate) fn cannot(traffic: &Traffic) -> Option<String> {
    let (name, most) = match traffic.tool {
        Tool::Evenkeel => return None,
        Tool::Iperf3 => ("iperf3", IPERF3_STREAMS),
        Tool::DItg => ("D-ITG", 1),
    };
    let sends = matches!(
        traffic.kind,
        TrafficKind::Cbr
            | TrafficKind::Poisson
            | TrafficKind::OnOff { .. }
            | TrafficKind::Greedy
            | TrafficKind::Tcp { .. }
    );
    if !sends {
        return Some(format!(
            "{name} does not send flows that come and go, recordings, or what people send; leave \
             `tool` out"
        ));
    }
    if traffic.party.as_ref().is_some_and(|party| party.len() > 1) {
        return Some(format!(
            "{name} has two ends, and these are the flows of many; name one of them, or leave \
             `tool` out"
        ));
    }
    (traffic.flows > most).then(|| {
        format!("{name} sends at most {most} flows at once, and this is {}", traffic.flows)
    })
}

/// What the tools of a scenario need installed.
pub(crate) fn needed(traffic: &[Traffic]) -> Vec<Program> {
    let used = |tool| traffic.iter().any(|traffic| traffic.tool == tool);
    let mut programs = Vec::new();
    if used(Tool::Iperf3) {
        programs.push(("iperf3", "traffic with tool = \"iperf3\"", "iperf3"));
    }
    if used(Tool::DItg) {
        programs.extend(
            ["ITGSend", "ITGRecv"]
                .map(|program| (program, "traffic with tool = \"d-itg\"", "d-itg")),
        );
    }
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_iperf3_are_read() {
        let udp = r#"{"end":{"sum":{"bits_per_second":9.5e6,"lost_packets":3,"packets":1000}}}"#;
        let says = iperf3_report(udp).expect("it is a report");
        assert_eq!(says, "iperf3 says: 9.50 Mbit/s of payload, 3 of 1000 packets lost");
        let tcp = r#"{"end":{"sum_sent":{"bits_per_second":5e6},"sum_received":{"bits_per_second":4e6}}}"#;
        assert_eq!(
            iperf3_report(tcp).expect("it is"),
            "iperf3 says: 4.00 Mbit/s of payload received"
        );
        let error = r#"{"end":{},"error":"unable to connect to server"}"#;
        assert_eq!(
            iperf3_report(error).expect("it is"),
            "iperf3 says: unable to connect to server"
        );
        assert_eq!(iperf3_report("no JSON"), None);
    }

    fn dumbbell() -> evenkeel_scenario::Scenario {
        evenkeel_scenario::Scenario::parse(
            include_str!("../../../scenarios/examples/tcp-dumbbell.toml"),
            "tcp-dumbbell.toml",
            Path::new("."),
        )
        .expect("it is shipped")
    }

    #[test]
    fn windows_of_tcp_streams_are_read_and_those_of_udp_left_out() {
        let tcp = r#"{"intervals": [
            {"streams": [
                {"end": 0.5, "snd_cwnd": 14480, "rtt": 20100, "retransmits": 0, "sender": true},
                {"end": 0.5, "snd_cwnd": 28960, "rtt": 0, "retransmits": 3, "sender": true}]},
            {"streams": [
                {"end": 1.0, "snd_cwnd": 20272, "rtt": 20400, "retransmits": 1, "sender": true},
                {"end": 1.0, "snd_cwnd": 7240, "rtt": 31000, "retransmits": 2, "sender": true}]}]}"#;
        let scenario = dumbbell();
        let traffic = &scenario.traffic[1];
        let rows = iperf3_connections(tcp, traffic).expect("it is a report");
        let begin = traffic.start.as_secs_f64();
        let told: Vec<_> = rows
            .iter()
            .map(|row| {
                (row.flow, (row.t_s - begin) as f32, row.cwnd_bytes, row.rtt_us, row.retransmitted)
            })
            .collect();
        let expected = [
            (0, 0.5, 14_480, Some(20_100.0), 0),
            (1, 0.5, 28_960, None, 3),
            (0, 1.0, 20_272, Some(20_400.0), 1),
            (1, 1.0, 7_240, Some(31_000.0), 5),
        ];
        assert_eq!(told, expected);
        let udp = r#"{"intervals": [{"streams": [{"end": 1.0, "bytes": 1000, "packets": 1}]}]}"#;
        assert_eq!(iperf3_connections(udp, traffic), Some(vec![]));
        assert_eq!(iperf3_connections("no JSON", traffic), None);
    }

    #[test]
    fn each_stream_of_iperf3_is_a_flow() {
        let scenario = dumbbell();
        let spec = FlowSpec {
            name: "f2".into(),
            number: 1,
            from: "b".into(),
            to: "c".into(),
            source: "10.0.1.1:40000".parse().expect("an address"),
            destination: "10.0.2.1:5002".parse().expect("an address"),
            party: None,
            dscp: 0,
            realtime: false,
        };
        let text = r#"{"start":{"connected":[{"local_port":41},{"local_port":43}]},"end":{"streams":[
            {"sender":{"retransmits":3},"receiver":{"end":2.0,"bytes":1000}},
            {"udp":{"end":1.0,"bytes":4000,"lost_packets":1,"packets":4}}]}}"#;
        let rows = iperf3_rows(text, &scenario.traffic[1], &spec).expect("it is a report");
        let told: Vec<_> = rows.iter().map(|row| (row.source.as_str(), row.flow)).collect();
        assert_eq!(told, [("10.0.1.1:41", 0), ("10.0.1.1:43", 1)]);
        assert_eq!((rows[0].start_s, rows[0].goodput_bps()), (0.17, Some(4_000.0)));
        assert_eq!((rows[0].lost_packets, rows[0].sent_packets), (3, None));
        assert_eq!((rows[1].delivered_bytes, rows[1].sent_packets), (3_000, Some(4)));
        assert_eq!(iperf3_rows("no JSON", &scenario.traffic[1], &spec), None);
    }
}
