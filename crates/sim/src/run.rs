//! One scenario from the first event to the judged rows.

use evenkeel_core::Nanos;
use evenkeel_report::{FlowRow, Judgement, Report, Run, StepMark};
use evenkeel_router::Snapshot;
use evenkeel_scenario::{Scenario, World, linux_of};
use evenkeel_world::sampling::{self, HostWindow, Places};
use evenkeel_world::subscribers::{Ledger, all_nodes};
use evenkeel_world::{audits, checks, describe, followed, wires};

use crate::engine::{Engine, add};
use crate::error::SimError;
use crate::outcome::{FlowTotals, Outcome, SimOptions};
use crate::{network, polled};

/// The scenario with the options applied.
fn prepared(scenario: &Scenario, options: &SimOptions) -> Result<Scenario, SimError> {
    let mut scenario = scenario.clone();
    if let Some(name) = &options.without {
        scenario = scenario.with_ablation(name)?;
    }
    if options.time_scale != 1.0 {
        scenario = scenario.scaled(options.time_scale)?;
    }
    scenario.seed = options.seed.unwrap_or(scenario.seed);
    Ok(scenario)
}

/// Simulates `scenario` to its end. Takes no time into account but its own.
///
/// # Errors
/// If an option does not fit the scenario, or something in it exists on real packets only.
pub fn run(scenario: &Scenario, options: &SimOptions) -> Result<Outcome, SimError> {
    let scenario = prepared(scenario, options)?;
    let captures = options.captures.begin(&scenario)?;
    if let Some(model) = &scenario.core {
        return polled::run(&scenario, model);
    }
    no_linux(&scenario)?;
    let places = Places::new(&scenario)?;
    let mut simulation = Simulation {
        places: places.all_measured(),
        engine: network::engine(&scenario, &options.disciplines)?,
        layout: None,
        ledger: Ledger::default(),
        run: describe::run(&scenario, "sim"),
        connections: options.connections,
        scenario: &scenario,
    };
    simulation.engine.capture(captures);
    simulation.go()?;
    let engine = &mut simulation.engine;
    for capture in std::mem::take(&mut engine.captures) {
        capture.end()?;
    }
    let flows =
        scenario.traffic.iter().enumerate().map(|(n, traffic)| totals(engine, n, &traffic.name));
    let flows: Vec<FlowTotals> = flows.collect();
    simulation.run.notes.append(&mut engine.notes);
    simulation.run.flows = follow(&scenario, engine);
    simulation.run.subscribers = simulation.ledger.rows(&scenario);
    let judgements: Vec<Judgement> =
        evenkeel_report::judge::judge(&scenario, &simulation.run, World::Sim);
    Ok(Outcome {
        run: simulation.run,
        judgements,
        flows,
        events: engine.queue.told(),
        packets: engine.hosts_sent,
        simulated: scenario.duration,
    })
}

/// The same as a report, as its results are written.
///
/// # Errors
/// As [`run`].
pub fn report(scenario: &Scenario, options: &SimOptions) -> Result<Report, SimError> {
    let outcome = run(scenario, options)?;
    let scenario = prepared(scenario, options)?;
    Ok(Report::of_scenario(&scenario, vec![outcome.run], outcome.judgements))
}

/// Refuses disciplines of Linux: there is no kernel here.
fn no_linux(scenario: &Scenario) -> Result<(), SimError> {
    for router in &scenario.routers {
        for link in &router.config.links {
            if let Some(linux) = linux_of(&link.discipline) {
                let (place, router) = (linux.place.clone(), router.name.clone());
                return Err(SimError::Linux { place, router, link: link.port.clone() });
            }
        }
    }
    Ok(())
}

/// A row for each flow, in order of their beginning: TCP connections, and what sources send by UDP.
fn follow(scenario: &Scenario, engine: &mut Engine) -> Vec<FlowRow> {
    let now = engine.now;
    let mut flows = std::mem::take(&mut engine.flows);
    flows.extend(engine.ends.iter_mut().flatten().filter_map(|end| end.row(now)));
    for (traffic, tally) in scenario.traffic.iter().zip(&engine.tallies) {
        let Some(of) = &tally.followed else { continue };
        let counts = (&of.sent, &of.arrived);
        flows.extend(followed::rows(scenario, traffic, counts, (Nanos::ZERO, now)));
    }
    followed::sort(scenario, &mut flows);
    flows
}

struct Simulation<'a> {
    scenario: &'a Scenario,
    places: Places,
    engine: Engine,
    /// The layout since the last step that changed it.
    layout: Option<Scenario>,
    /// What subscribers had.
    ledger: Ledger,
    /// Whether TCP connections are looked at.
    connections: bool,
    run: Run,
}

/// Counters of routers and hosts at one instant.
struct Counters {
    routers: Vec<Snapshot>,
    sent: Vec<u64>,
}

impl Simulation<'_> {
    fn go(&mut self) -> Result<(), SimError> {
        let scenario = self.scenario;
        let mut steps = scenario.steps.iter().peekable();
        let mut last = self.counters();
        let mut window_end = Nanos::ZERO;
        self.look(window_end)?;
        while window_end < scenario.duration {
            // A window that ends when a step is due belongs to the step before.
            while let Some(step) = steps.next_if(|step| step.at <= window_end) {
                self.apply(step)?;
            }
            window_end = window_end.saturating_add(scenario.sample).min(scenario.duration);
            while let Some(step) = steps.next_if(|step| step.at < window_end) {
                self.engine.run_until(step.at);
                self.apply(step)?;
            }
            self.engine.run_until(window_end);
            let now = self.counters();
            let hosts = self.host_window(&last, &now);
            for (earlier, later) in last.routers.iter().zip(&now.routers) {
                let (samples, calls) =
                    sampling::rows(earlier, later, Nanos::ZERO, &self.places, &hosts);
                self.run.samples.extend(samples);
                self.run.calls.extend(calls);
            }
            last = now;
            if self.connections {
                self.run.connections.extend(self.engine.connections());
            }
            self.look(window_end)?;
        }
        self.run.warnings.extend(last.routers.iter().flat_map(checks::conservation));
        self.run.audits = last.routers.iter().flat_map(audits::of_router).collect();
        self.run.wires = wires_of(self.scenario, &self.engine);
        self.run.notes.extend(self.run.wires.iter().map(wires::told));
        self.run.warnings.extend(unexplained(&self.engine, &last.routers));
        Ok(())
    }

    /// Looks at the subscribers at the end of a window.
    fn look(&mut self, now: Nanos) -> Result<(), SimError> {
        for (number, router) in self.engine.routers.iter().enumerate() {
            if !Ledger::is_wanted(self.scenario, number) {
                continue;
            }
            let nodes = all_nodes(|query| router.pipeline.nodes(now, &query));
            let nodes = nodes.map_err(|source| SimError::Subscribers {
                router: self.scenario.routers[number].name.clone(),
                source: Box::new(source),
            })?;
            self.ledger.window(self.scenario, number, now, &nodes);
        }
        Ok(())
    }

    fn apply(&mut self, step: &evenkeel_scenario::Step) -> Result<(), SimError> {
        let now = self.engine.now;
        if step.changes_layout() {
            self.lay_out(step);
        }
        for change in &step.set {
            let router =
                self.scenario.routers.iter().position(|router| router.name == change.router);
            let router = router.ok_or_else(|| SimError::NoRouter {
                step: step.name.clone(),
                router: change.router.clone(),
            })?;
            self.engine.routers[router].set(now, change)?;
            self.engine.touched(router as u32);
        }
        self.run.steps.push(StepMark {
            name: step.name.clone(),
            at_s: now.as_secs_f64(),
            changes: describe::changes(self.scenario, step),
        });
        Ok(())
    }

    /// Wires go down or come up, and every router has the routes that are left. All flows knock
    /// anew.
    fn lay_out(&mut self, step: &evenkeel_scenario::Step) {
        let now = self.engine.now;
        let index = self.scenario.step(&step.name).unwrap_or_default();
        let before = self.layout.replace(self.scenario.during(index));
        let before = before.as_ref().unwrap_or(self.scenario);
        let then = self.layout.as_ref().unwrap_or(self.scenario);
        for (number, router) in self.scenario.routers.iter().enumerate() {
            self.engine.routers[number].lay_out(now, &router.name, before, then);
            self.engine.touched(number as u32);
        }
        for tally in &mut self.engine.tallies {
            if let Some(acceptance) = &mut tally.acceptance {
                acceptance.anew();
            }
        }
    }

    fn counters(&mut self) -> Counters {
        let now = self.engine.now;
        let routers = self.engine.routers.iter_mut().map(|router| router.snapshot(now)).collect();
        Counters { routers, sent: self.engine.tallies.iter().map(|tally| tally.sent).collect() }
    }

    fn host_window(&mut self, last: &Counters, now: &Counters) -> HostWindow {
        let sent = now.sent.iter().zip(&last.sent).map(|(now, last)| now - last).collect();
        let arrived = self.engine.tallies.iter_mut().map(|tally| {
            tally.before.0 += tally.arrived.packets;
            tally.before.1 += tally.arrived.bytes;
            if let Some(acceptance) = &mut tally.acceptance {
                tally.arrived.accepted = Some(acceptance.take());
                tally.arrived.waiting = acceptance.waiting();
            }
            std::mem::take(&mut tally.arrived)
        });
        HostWindow { sent, arrived: arrived.collect() }
    }
}

fn totals(engine: &Engine, number: usize, name: &str) -> FlowTotals {
    let tally = &engine.tallies[number];
    let [mut sender, mut receiver] = tally.done;
    for end in engine.ends.iter().flatten().filter(|end| end.traffic as usize == number) {
        add(if end.opens { &mut sender } else { &mut receiver }, &end.endpoint.counters());
    }
    FlowTotals {
        name: name.to_owned(),
        sent_packets: tally.sent,
        received_packets: tally.before.0 + tally.arrived.packets,
        received_bytes: tally.before.1 + tally.arrived.bytes,
        sender,
        receiver,
    }
}

/// Totals of the wires that do something to packets.
fn wires_of(scenario: &Scenario, engine: &Engine) -> Vec<evenkeel_report::run::WireTotals> {
    let directions = engine.directions.iter().enumerate();
    directions
        .filter_map(|(number, direction)| {
            let counters = direction.emulator.as_ref()?.counters();
            let held = counters.carried.saturating_sub(direction.arrived);
            Some(wires::totals(scenario, number / 2, number % 2, counters, held))
        })
        .collect()
}

/// A sentence about every place where packets do not add up: wires, routers, and from host to host.
fn unexplained(engine: &Engine, routers: &[Snapshot]) -> Vec<String> {
    let mut found = Vec::new();
    let (mut into, mut out, mut lost) = (0, 0, 0);
    for direction in &engine.directions {
        into += direction.sent;
        out += direction.arrived;
        lost +=
            direction.emulator.as_ref().map_or(0, |e| e.counters().lost + e.counters().overflowed);
    }
    if into != out + lost + engine.on_wires() {
        let on = engine.on_wires();
        found.push(format!(
            "wires: {into} frames in != {out} out + {lost} lost + {on} on their way"
        ));
    }
    let (mut received, mut sent) = (0, 0);
    for router in routers {
        let mut balance = 0i128;
        for port in &router.ports {
            received += port.rx_packets;
            sent += port.tx_packets;
            balance += i128::from(port.rx_packets + port.originated) - i128::from(port.fragmented);
            let gone = port.to_host + port.waiting + port.tx_packets + port.tx_waiting;
            let dropped: u64 = port.dropped.values().chain(port.tx_dropped.values()).sum();
            balance -= i128::from(gone + dropped);
        }
        for link in &router.links {
            let dropped: u64 = link.classes.iter().flat_map(|class| class.dropped.values()).sum();
            balance -= i128::from(link.queued + link.in_ring + dropped);
        }
        if balance != 0 {
            found.push(format!("router {}: {balance} packets disappeared", router.router));
        }
    }
    if into != engine.hosts_sent + sent || out != engine.hosts_received + received {
        found.push(format!(
            "hosts sent {} and received {}, routers {sent} and {received}, but wires carried \
             {into} and {out}",
            engine.hosts_sent, engine.hosts_received
        ));
    }
    found
}
