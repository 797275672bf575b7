//! One scenario, from the first namespace to the written report.

mod ending;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::Nanos;
use evenkeel_netns::processors::Processors;
use evenkeel_ports::sys::{self, Signals, lock};
use evenkeel_report::{Judgement, Report, Run, StepMark, judge};
use evenkeel_router::Snapshot;
use evenkeel_scenario::{Router, Scenario, Tool, World as Where};
use evenkeel_world::capture::Captures;
use evenkeel_world::describe;
use evenkeel_world::sampling::{self, HostWindow, Places};
use evenkeel_world::subscribers::Ledger;
use evenkeel_world::wires;

use crate::capture::{self, Capturing};
use crate::checks;
use crate::connections::Connections;
use crate::flow::{FlowSpec, Knocks, Sender, Sent, Sink};
use crate::kernel::KernelRouter;
use crate::limits;
use crate::node::RouterNode;
use crate::plan::{Plan, layout_change, wire_node};
use crate::progress::Progress;
use crate::router_process::{RouterProcess, cpu_time};
use crate::schedule::Schedule;
use crate::shell;
use crate::tools::{self, ToolFlow};
use crate::wire::Wire;
use crate::world::{self, World};
use crate::{LabError, LabOptions};

/// From the first sender's thread being made to the first packet.
const LEAD: Nanos = Nanos::from_millis(200);

/// What is written of a run besides its samples.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Frames of wires.
    pub(crate) captures: Captures,
    /// How TCP connections see their way.
    pub(crate) connections: bool,
}

/// What came out of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The samples, as they went into the report.
    pub run: Run,
    /// The expectations, judged.
    pub judgements: Vec<Judgement>,
    /// Files written, the report page last.
    pub files: Vec<PathBuf>,
}

impl Outcome {
    /// Whether all went as expected; in a run without a mechanism: whether what had to fail failed.
    #[must_use]
    pub fn passed(&self) -> bool {
        judge::bad(&self.judgements).is_empty()
    }

    /// 0 if [`passed`](Self::passed), else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.passed())
    }
}

/// Runs `scenario` on real packets and writes its results.
///
/// # Errors
/// Missing root, kernel features or programs ([`LabError::exit_code`] 3), values that a router
/// refuses (2), failures on the way (1). Everything is torn down before it returns.
pub fn run(scenario: &Scenario, options: &LabOptions) -> Result<Outcome, LabError> {
    let scenario = prepared(scenario, options)?;
    let progress = Progress::new(options.progress, &[(&scenario.name, scenario.duration)]);
    let asked = Asked {
        captures: Captures { wires: options.captures.clone(), folder: options.out_dir.clone() },
        connections: options.connections,
    };
    let run = measure(&scenario, &options.binary, &progress, &asked)?;
    progress.finish();
    let judgements = judge::judge(&scenario, &run, Where::Lab);
    let report = Report::of_scenario(&scenario, vec![run.clone()], judgements.clone());
    let files = evenkeel_report::write_all(&options.out_dir, &report).map_err(write_error)?;
    if !options.quiet {
        print_result(&run, &judgements, &files);
    }
    Ok(Outcome { run, judgements, files })
}

/// The scenario with the options applied.
fn prepared(scenario: &Scenario, options: &LabOptions) -> Result<Scenario, LabError> {
    let mut scenario = scenario.clone();
    if let Some(name) = &options.without {
        scenario = scenario.with_ablation(name)?;
    }
    if options.time_scale != 1.0 {
        scenario = scenario.scaled(options.time_scale)?;
    }
    Ok(scenario)
}

pub(crate) fn write_error(error: evenkeel_report::WriteError) -> LabError {
    LabError::Write { path: error.path, source: error.source }
}

fn print_result(run: &Run, judgements: &[Judgement], files: &[PathBuf]) {
    println!("{}", evenkeel_report::table::steps(run));
    println!("{}", evenkeel_report::table::judgements(judgements));
    for note in &run.notes {
        println!("{note}");
    }
    for warning in &run.warnings {
        eprintln!("warning: {warning}");
    }
    if let Some(page) = files.last() {
        println!("report: {}", page.display());
    }
}

/// Runs a scenario whose times and mechanisms are as they shall be. Everything is torn down when it
/// returns.
///
/// # Errors
/// As [`run`].
pub(crate) fn measure(
    scenario: &Scenario,
    binary: &std::path::Path,
    progress: &Progress,
    asked: &Asked,
) -> Result<Run, LabError> {
    require(scenario)?;
    capture::check(&asked.captures, scenario)?;
    let signals = Signals::block()
        .map_err(|source| LabError::System { what: "watch for signals".into(), source })?;
    // Each flow has a socket. Where the limit does not reach, its packets are counted as refused,
    // and told.
    let _ = sys::allow_as_many_files_as_possible();
    world::sweep();
    progress.say("making namespaces");
    let places = Places::new(scenario)?;
    let mut world = World::new()?;
    let plan = Plan::new(scenario, |node| world.namespace(node))?;
    world.build(&plan)?;
    let wires = wires(scenario, &world)?;
    world.warm_up(&plan.pings)?;
    progress.say("starting routers");
    let mut lab = Lab {
        scenario,
        places,
        signals,
        progress,
        routers: Vec::new(),
        flows: flows(scenario, &world)?,
        sources: Vec::new(),
        arrived: 0,
        notes: Vec::new(),
        sinks: Vec::new(),
        knocks: Vec::new(),
        layout: None,
        wires,
        world,
    };
    lab.start_routers(binary)?;
    lab.check()?;
    lab.measure(asked)
}

/// Finds out whether everything that the scenario needs is there.
///
/// # Errors
/// [`LabError::NotRoot`], [`LabError::MissingTools`].
pub(crate) fn require(scenario: &Scenario) -> Result<(), LabError> {
    limits::check(scenario)?;
    if !sys::is_root() {
        return Err(LabError::NotRoot);
    }
    let tc = scenario.routers.iter().any(Router::is_kernel).then_some(shell::TC);
    let tools = tools::needed(&scenario.traffic);
    shell::require(shell::ALWAYS.into_iter().chain(tc).chain(tools))
}

/// A wire that does something to packets: its number in the scenario, and the thread that does it.
type LiveWire = (usize, Wire);

/// Starts those wires that do something to packets.
fn wires(scenario: &Scenario, world: &World) -> Result<Vec<LiveWire>, LabError> {
    let mut started = Vec::new();
    for (number, wire) in scenario.wires.iter().enumerate() {
        let name = || format!("wire {} to {}", wire.ends[0].node, wire.ends[1].node);
        let emulator = |near| {
            wires::emulator(scenario, number, near)
                .map_err(|error| LabError::refused(&wire.place, &name(), &error.to_string()))
        };
        let (Some(there), Some(back)) = (emulator(0)?, emulator(1)?) else { continue };
        let namespace = world.namespace(&wire_node(number));
        started.push((number, Wire::start(&namespace, [there, back], wire.mtu, world.folder())?));
    }
    Ok(started)
}

/// Whether a router shares out its cycles: what others take of them is missing there.
fn shares_cycles(scenario: &Scenario) -> bool {
    let mut fairdrops =
        scenario.routers.iter().filter_map(|router| router.config.fairdrop.as_ref());
    fairdrops.any(|fairdrop| fairdrop.cpu)
}

/// The flows of the scenario between their namespaces.
fn flows(scenario: &Scenario, world: &World) -> Result<Vec<FlowSpec>, LabError> {
    let realtime = scenario.routers.iter().any(|router| router.config.router.realtime);
    let numbered = scenario.traffic.iter().zip(0..);
    numbered
        .map(|(traffic, number)| {
            let key = sampling::flow_key(scenario, traffic).ok_or_else(|| {
                LabError::BadInput(format!("traffic {}: a host has no wire", traffic.name))
            })?;
            Ok(FlowSpec {
                name: traffic.name.clone(),
                number,
                from: world.namespace(&traffic.from),
                to: world.namespace(&traffic.to),
                source: (key.source, key.source_port).into(),
                destination: (key.destination, key.destination_port).into(),
                party: traffic.party.clone(),
                dscp: traffic.dscp,
                realtime,
            })
        })
        .collect()
}

/// What makes the packets of one flow.
enum Driver {
    Own(Sender),
    Connections(Connections),
    Tool(ToolFlow),
}

impl Driver {
    fn sent(&self) -> Sent {
        match self {
            Self::Own(sender) => sender.sent(),
            Self::Connections(_) | Self::Tool(_) => Sent::default(),
        }
    }
}

/// A run that is going on. Fields go in this order: senders, sinks, routers, wires, then the
/// namespaces they are in.
struct Lab<'a> {
    sources: Vec<Driver>,
    knocks: Vec<Knocks>,
    /// The layout since the last step that changed it.
    layout: Option<Scenario>,
    sinks: Vec<Option<Sink>>,
    routers: Vec<RouterNode>,
    wires: Vec<LiveWire>,
    world: World,
    flows: Vec<FlowSpec>,
    /// Packets that arrived at sinks since the start.
    arrived: u64,
    /// What to say of the run besides.
    notes: Vec<String>,
    places: Places,
    signals: Signals,
    scenario: &'a Scenario,
    progress: &'a Progress,
}

/// What the routers and hosts had counted at one instant.
struct Counters {
    routers: Vec<Snapshot>,
    sent: Vec<Sent>,
}

impl Lab<'_> {
    fn start_routers(&mut self, binary: &std::path::Path) -> Result<(), LabError> {
        for router in &self.scenario.routers {
            let namespace = |node: &str| self.world.namespace(node);
            let node = if router.is_kernel() {
                RouterNode::Kernel(KernelRouter::start(self.scenario, router, namespace)?)
            } else {
                let own = namespace(&router.name);
                let folder = self.world.folder();
                RouterNode::Ours(RouterProcess::start(router, &own, folder, binary)?)
            };
            self.routers.push(node);
            self.look_for_signals()?;
        }
        Ok(())
    }

    fn look_for_signals(&self) -> Result<(), LabError> {
        match self.signals.take() {
            Some(_) => Err(LabError::Interrupted),
            None => Ok(()),
        }
    }

    /// Whether the routers, and not their kernels, forward.
    fn check(&mut self) -> Result<(), LabError> {
        self.progress.say("checking who forwards");
        for (index, spec) in self.flows.iter().enumerate() {
            let arrives = !self.places.is_encrypted(index);
            let (along, routers) = (self.places.of_flow(index), &mut self.routers);
            let same_class = !self.scenario.traffic[index].kind.is_tcp();
            checks::router_forwards(spec, along, arrives, same_class, routers)?;
            self.look_for_signals()?;
        }
        Ok(())
    }

    fn counters(&mut self) -> Result<Counters, LabError> {
        let routers =
            self.routers.iter_mut().map(RouterNode::snapshot).collect::<Result<_, _>>()?;
        Ok(Counters { routers, sent: self.sources.iter().map(Driver::sent).collect() })
    }

    /// Starts sinks, then sources.
    fn start_traffic(&mut self, start: Nanos, connections: bool) -> Result<(), LabError> {
        let every = connections.then_some(self.scenario.sample);
        for (traffic, spec) in self.scenario.traffic.iter().zip(&self.flows) {
            let knocks = self.scenario.measures_acceptance().then(Arc::default);
            let sink = (traffic.tool == Tool::Evenkeel && !traffic.kind.are_connections())
                .then(|| Sink::start(spec, knocks.clone()))
                .transpose()?;
            self.sinks.push(sink);
            self.knocks.push(knocks);
        }
        for ((traffic, spec), knocks) in
            self.scenario.traffic.iter().zip(&self.flows).zip(&self.knocks)
        {
            let both = (self.scenario, traffic);
            if let Some(connections) = Connections::start(spec, both, start, every)? {
                self.sources.push(Driver::Connections(connections));
                continue;
            }
            let own = match traffic.tool {
                Tool::Evenkeel => Schedule::of(self.scenario, traffic, spec.number, start)?,
                Tool::Iperf3 | Tool::DItg => None,
            };
            self.notes.extend(own.as_ref().and_then(Schedule::told).cloned());
            self.sources.push(match own {
                Some(schedule) => Driver::Own(Sender::start(spec, schedule, knocks.clone())?),
                None => {
                    let folder = self.world.folder();
                    Driver::Tool(ToolFlow::start(spec, traffic, start, every, folder)?)
                }
            });
        }
        Ok(())
    }

    /// Looks at the subscribers at the end of a window.
    fn look(&mut self, ledger: &mut Ledger, now: Nanos) -> Result<(), LabError> {
        for (number, router) in self.routers.iter_mut().enumerate() {
            if Ledger::is_wanted(self.scenario, number) {
                ledger.window(self.scenario, number, now, &router.nodes()?);
            }
        }
        Ok(())
    }

    /// Waits until `due`, watching signals, routers and tools. Shows how far the run is.
    fn wait(&mut self, start: Nanos, due: Nanos) -> Result<(), LabError> {
        loop {
            self.look_for_signals()?;
            let now = sys::monotonic_now();
            self.progress.at(now.saturating_sub(start));
            if now >= due {
                return Ok(());
            }
            let left = Duration::from_nanos((due - now).0);
            if left > Duration::from_millis(100) {
                self.routers.iter_mut().try_for_each(RouterNode::check_alive)?;
            }
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }

    fn measure(mut self, asked: &Asked) -> Result<Run, LabError> {
        let scenario = self.scenario;
        let namespace = |node: &str| self.world.namespace(node);
        let capturing = Capturing::start(&asked.captures, scenario, namespace)?;
        self.wires.iter().for_each(|(_, wire)| wire.engage());
        self.routers.iter_mut().filter_map(RouterNode::kernel).try_for_each(KernelRouter::begin)?;
        let start = sys::monotonic_now() + LEAD;
        self.start_traffic(start, asked.connections)?;
        self.progress.say(&scenario.name);
        let mut run = describe::run(scenario, "lab");
        let first = self.counters()?;
        let mut last = Counters {
            routers: first.routers.clone(),
            sent: vec![Sent::default(); self.flows.len()],
        };
        let cpu_before = (cpu_time("self"), self.router_cpu());
        let processors = Processors::now();
        let mut ledger = Ledger::default();
        self.wait(start, start)?;
        self.look(&mut ledger, Nanos::ZERO)?;

        let mut steps = scenario.steps.iter().peekable();
        let mut window_end = Nanos::ZERO;
        let mut unbalanced = Vec::new();
        while window_end < scenario.duration {
            // A window that ends when a step is due is sampled first: it belongs to the step
            // before.
            while let Some(step) = steps.next_if(|step| step.at <= window_end) {
                let mut mark = self.apply(step, start)?;
                if step.changes_layout() {
                    // Who is let in while the interfaces change is let in after the failure: the
                    // window that has just begun is the step's.
                    let begun = last.routers.iter().map(|router| Nanos(router.time_ns)).min();
                    mark.at_s = begun.unwrap_or(start).saturating_sub(start).as_secs_f64();
                }
                run.steps.push(mark);
            }
            window_end = window_end.saturating_add(scenario.sample).min(scenario.duration);
            while let Some(step) = steps.next_if(|step| step.at < window_end) {
                self.wait(start, start + step.at)?;
                run.steps.push(self.apply(step, start)?);
            }
            self.wait(start, start + window_end)?;
            let now = self.counters()?;
            let hosts = self.host_window(&last, &now);
            for (earlier, later) in last.routers.iter().zip(&now.routers) {
                let (samples, calls) = sampling::rows(earlier, later, start, &self.places, &hosts);
                run.samples.extend(samples);
                run.calls.extend(calls);
                unbalanced.extend(checks::conservation(later));
            }
            last = now;
            self.look(&mut ledger, window_end)?;
        }
        run.subscribers = ledger.rows(scenario);
        let wall = scenario.duration.as_secs_f64();
        let own = (cpu_time("self") - cpu_before.0).as_secs_f64() / wall;
        let routers = (self.router_cpu() - cpu_before.1).as_secs_f64() / wall;
        let warnings = self.finish(&first, start, &mut run)?;
        let missing = capturing.map(|capturing| capturing.end(&mut run)).transpose()?;
        run.flows = self.follow(start, scenario.duration);
        run.connections.extend(asked.connections.then(|| self.connections()).into_iter().flatten());
        run.warnings = warnings;
        run.warnings.extend(missing.flatten());
        run.warnings.extend(unbalanced.into_iter().take(1));
        if shares_cycles(scenario)
            && let Some(why) = processors.missing()
        {
            run.warnings.push(format!(
                "not judged: {why}: shares of cycles say nothing of the router then"
            ));
        }
        run.notes.push(format!(
            "Processor time: sources and sinks {:.0} %, routers {:.0} % of one processor.",
            own * 100.0,
            routers * 100.0
        ));
        Ok(run)
    }

    fn router_cpu(&self) -> Duration {
        self.routers.iter().map(RouterNode::cpu_time).sum()
    }

    fn apply(
        &mut self,
        step: &evenkeel_scenario::Step,
        start: Nanos,
    ) -> Result<StepMark, LabError> {
        if step.changes_layout() {
            self.lay_out(step)?;
        }
        for change in &step.set {
            let router = self.routers.iter_mut().find(|router| router.name() == change.router);
            let router = router.ok_or_else(|| {
                LabError::BadInput(format!(
                    "step {}: there is no router {}",
                    step.name, change.router
                ))
            })?;
            router.set(change)?;
        }
        Ok(StepMark {
            name: step.name.clone(),
            at_s: sys::monotonic_now().saturating_sub(start).as_secs_f64(),
            changes: describe::changes(self.scenario, step),
        })
    }

    /// Interfaces go down; from then on all flows knock anew, and the kernel of every router gets
    /// the routes that are left, as a routing protocol would give them: all routers at once, so
    /// that what flows wait for is not the lab.
    fn lay_out(&mut self, step: &evenkeel_scenario::Step) -> Result<(), LabError> {
        let index = self.scenario.step(&step.name).unwrap_or_default();
        let before = self.layout.replace(self.scenario.during(index));
        let before = before.as_ref().unwrap_or(self.scenario);
        let then = self.layout.as_ref().unwrap_or(self.scenario);
        let (mut failing, mut following) = (Vec::new(), Vec::new());
        for router in &self.scenario.routers {
            let lines = layout_change(before, then, &router.name);
            let (down, rest) = lines.into_iter().partition(|line| line.ends_with(" down"));
            failing.push((&router.name, down));
            following.push((&router.name, rest));
        }
        change_all(&self.world, &failing)?;
        for acceptance in self.knocks.iter().flatten() {
            lock(acceptance).anew();
        }
        change_all(&self.world, &following)
    }

    fn host_window(&mut self, last: &Counters, now: &Counters) -> HostWindow {
        let sent =
            now.sent.iter().zip(&last.sent).map(|(now, last)| now.packets - last.packets).collect();
        let arrived = self.sinks.iter().zip(&self.knocks).map(|(sink, knocks)| {
            let mut arrived = sink.as_ref().map(Sink::take).unwrap_or_default();
            if let Some(acceptance) = knocks {
                let mut acceptance = lock(acceptance);
                arrived.accepted = Some(acceptance.take());
                arrived.waiting = acceptance.waiting();
            }
            arrived
        });
        let arrived: Vec<_> = arrived.collect();
        self.arrived += arrived.iter().map(|flow| flow.packets).sum::<u64>();
        HostWindow { sent, arrived }
    }
}

/// Has `ip` carry out the commands of each node, all nodes at once.
fn change_all(world: &World, changes: &[(&String, Vec<String>)]) -> Result<(), LabError> {
    std::thread::scope(|scope| {
        let change = |(node, lines): &(&String, Vec<String>)| world.change(node, lines);
        let running: Vec<_> =
            changes.iter().map(|of_node| scope.spawn(move || change(of_node))).collect();
        running.into_iter().try_for_each(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}
