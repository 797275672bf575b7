//! One scenario in both worlds by the command: real packets meet the same wires as simulated ones.
//! Needs root, else skipped.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use evenkeel_core::Nanos;
use evenkeel_netns::testing::{available, text};
use evenkeel_ports::pcap::Capture;
use serde_json::Value;

/// A capture of `packets` UDP packets of 300 bytes over IPv4, one each 10 ms.
fn capture(packets: u32) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(0xa1b2_c3d4u32.to_le_bytes());
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0]);
    let mut frame = vec![0; 14 + 300];
    frame[12] = 8;
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&300u16.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let words = frame[14..34].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    frame[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    frame[38..40].copy_from_slice(&280u16.to_be_bytes());
    for number in 0..packets {
        let length = frame.len() as u32;
        for word in [1_000 + number / 100, number % 100 * 10_000, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(&frame);
    }
    file
}

/// Runs the scenario in a world; all it expects must hold. Gives its summary.
fn run(world: &str, file: &Path, out: &Path, more: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.arg(world).arg(file).arg("--out").arg(out).args(more);
    let output = command.output().unwrap();
    let printed = text(&output);
    assert!(output.status.success(), "{world}: {printed}");
    assert!(!printed.contains("warning"), "{world}: nothing is unexplained: {printed}");
    serde_json::from_str(&std::fs::read_to_string(out.join("summary.json")).unwrap()).unwrap()
}

/// How TCP senders see their way is told alike in both worlds: Linux's by iperf3.
#[test]
fn connections_are_looked_at_in_both_worlds() {
    if !available("connections_are_looked_at_in_both_worlds") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/latency/pdrr.toml");
    for world in ["sim", "lab"] {
        let out = folder.path().join(world);
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        command.arg(world).arg(file).arg("--out").arg(&out);
        let output =
            command.args(["--time-scale", "0.2", "--connections", "--quiet"]).output().unwrap();
        // Claims need not hold in so short a run.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{world}: {}", text(&output));
        let rows = std::fs::read_to_string(out.join("connections.csv")).unwrap();
        let mut seen = [0; 8];
        for row in rows.lines().skip(1) {
            let [.., traffic, flow, t, cwnd, rtt, again] = row.split(',').collect::<Vec<_>>()[..]
            else {
                panic!("{row}")
            };
            assert_eq!(traffic, "copies", "calls speak no TCP");
            let number = |text: &str| text.parse::<f64>().unwrap_or_else(|_| panic!("{row}"));
            assert!((0.1..9.0).contains(&number(t)), "{world}: {row}");
            // A segment at least, and no more than eight seconds of the link.
            assert!((500.0..20e6).contains(&number(cwnd)) && number(again) >= 0.0, "{row}");
            // 20 ms there and back, and the queue.
            assert!((19_900.0..500_000.0).contains(&number(rtt)), "{world}: {row}");
            seen[number(flow) as usize] += 1;
        }
        // Windows of 200 ms for eight seconds; the first may find no connection yet.
        assert!(seen.iter().all(|rows| (30..=45).contains(rows)), "{world}: {seen:?}");
        let page = std::fs::read_to_string(out.join("report.html")).unwrap();
        assert!(page.contains("Congestion window") && out.join("connections.parquet").is_file());
    }
}

/// The rows of `flows.csv` by traffic: start, end, payload asked for and delivered, packets sent.
fn flows(out: &Path) -> HashMap<String, Vec<[Option<f64>; 5]>> {
    let text = std::fs::read_to_string(out.join("flows.csv")).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let at = |name| names.iter().position(|column| *column == name).unwrap();
    let told = ["start_s", "end_s", "asked_bytes", "delivered_bytes", "sent_packets"].map(at);
    let mut flows: HashMap<_, Vec<_>> = HashMap::new();
    for row in lines {
        let row_of = flows.entry(row[at("traffic")].to_owned()).or_default();
        row_of.push(told.map(|column| row[column].parse::<f64>().ok()));
    }
    flows
}

#[test]
fn what_people_send_is_the_same_on_real_packets_and_in_virtual_time() {
    if !available("what_people_send_is_the_same_on_real_packets_and_in_virtual_time") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let household = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/latency/household.toml");
    let household = std::fs::read_to_string(household).unwrap();
    let (household, _) = household.split_once("[[without]]").unwrap();
    let (household, _) = household.split_once("[[traffic]]\nname = \"copies\"").unwrap();
    let short = household
        .replace("duration = \"70s\"", "duration = \"12s\"")
        .replace("settle = \"10s\"", "settle = \"1s\"")
        // Enough of them for some files in so short a time.
        .replace("users = 6", "users = 200\nstop = \"4s\"")
        .replace("users = 12", "users = 60\nstop = \"8s\"");
    let file = folder.path().join("household.toml");
    std::fs::write(&file, short).unwrap();
    let [sim, lab] = ["sim", "lab"].map(|world| {
        let out = folder.path().join(world);
        run(world, &file, &out, &[]);
        flows(&out)
    });
    for name in ["calls", "games", "video"] {
        let sent = |flows: &HashMap<String, Vec<[Option<f64>; 5]>>| {
            flows[name].iter().map(|row| row[4].unwrap()).collect::<Vec<_>>()
        };
        let (sim, lab) = (sent(&sim), sent(&lab));
        // A busy machine may leave out some, and says so.
        let close = |(sim, lab): (&f64, &f64)| *lab <= *sim && *lab >= sim * 0.97;
        assert!(
            sim.len() == lab.len() && sim.iter().zip(&lab).all(close),
            "{name}: {sim:?} {lab:?}"
        );
    }
    for (name, least) in [("pages", 20), ("updates", 2)] {
        let (sim, lab) = (&sim[name], &lab[name]);
        assert!(sim.len() >= least && sim.len() == lab.len(), "{name}: {sim:?} {lab:?}");
        for (sim, lab) in sim.iter().zip(lab) {
            assert_eq!(sim[2], lab[2], "{name}: the same bytes");
            assert!(lab[0].unwrap() - sim[0].unwrap() < 0.1, "{name}: {sim:?} {lab:?}");
            // Two round trips of 20 ms at least. Where it has come, all of it has.
            let Some(end) = lab[1] else { continue };
            assert!(end - lab[0].unwrap() > 0.039 && lab[3] == lab[2], "{name}: {lab:?}");
        }
        let done = lab.iter().filter(|row| row[1].is_some()).count();
        assert!(done * 10 >= lab.len() * 8, "{name}: {done} of {}", lab.len());
    }
}

#[test]
fn wires_many_flows_and_recordings_are_the_same_on_real_packets_and_in_virtual_time() {
    if !available(
        "wires_many_flows_and_recordings_are_the_same_on_real_packets_and_in_virtual_time",
    ) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("steady.pcap"), capture(250)).unwrap();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/examples/long-wires.toml");
    let recording = "[[traffic]]\nname = \"recorded\"\nfrom = \"far\"\nto = \"b\"\nkind = \
                     \"replay\"\nfile = \"steady.pcap\"\n\n[[expect]]";
    let example = std::fs::read_to_string(example).unwrap().replacen("[[expect]]", recording, 1);
    let file = folder.path().join("both.toml");
    std::fs::write(&file, example).unwrap();
    let [sim, lab] = ["sim", "lab"].map(|world| {
        let more = ["--time-scale", "0.5", "--capture", "b/r1"];
        run(world, &file, &folder.path().join(world), &more)
    });

    let wires = |summary: &Value| summary["runs"][0]["wires"].as_array().unwrap().clone();
    let (sim, lab) = (wires(&sim), wires(&lab));
    assert_eq!((sim.len(), lab.len()), (6, 6), "three wires do something, each in both directions");
    for (sim, lab) in sim.iter().zip(&lab) {
        let name = format!("{} to {}", lab["from"], lab["to"]);
        assert_eq!((&sim["from"], &sim["to"]), (&lab["from"], &lab["to"]));
        let of = |wire: &Value, what: &str| wire[what].as_u64().unwrap();
        for wire in [sim, lab] {
            let out = ["arrived", "held", "lost", "overflowed"]
                .map(|what| of(wire, what))
                .iter()
                .sum::<u64>();
            assert_eq!(of(wire, "sent"), out, "{name}: nothing disappears");
        }
        for what in ["sent", "lost", "overflowed", "overtaking"] {
            let (sim, lab) = (of(sim, what), of(lab, what));
            // The same random numbers, for all but those few packets that a busy machine leaves out
            // or lets meet a full queue.
            assert!(
                sim.abs_diff(lab) <= 5 + sim / 50,
                "{name}, {what}: {sim} simulated, {lab} real"
            );
        }
    }
    let recorded = lab.iter().find(|wire| wire["from"] == "r1" && wire["to"] == "b").unwrap();
    assert_eq!(recorded["sent"], 250, "every packet of the recording comes by");

    // Other programs can see them, in both worlds: those of the recording alone have this length.
    for world in ["sim", "lab"] {
        let mut captured = Capture::open(&folder.path().join(world).join("b-r1.pcapng")).unwrap();
        let (mut of_recording, mut last) = (0, Nanos::ZERO);
        while let Some(frame) = captured.read().unwrap() {
            assert!(frame.bytes.len() <= 128 && frame.original >= 42, "{world}: {frame:?}");
            // Two sockets are read in turn, one pass after the other.
            let order = frame.stamp + Nanos::from_millis(if world == "lab" { 50 } else { 0 });
            assert!(order >= last, "{world}: {frame:?} after {last}");
            last = frame.stamp;
            of_recording += u32::from(frame.original == 314);
        }
        assert_eq!(of_recording, 250, "{world}");
    }
}
