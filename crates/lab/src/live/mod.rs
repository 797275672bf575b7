//! A live cluster scenario on real packets: every router is a process in a namespace of its own.

mod capture;
mod numbers;
mod segment;
mod source;
mod stranger;

use std::path::Path;
use std::time::Duration;

use evenkeel_config::{
    BalancerForwarder, BalancerSection, ForwarderState, RouterConfig, StationAddress,
};
use evenkeel_control::Request;
use evenkeel_core::Nanos;
use evenkeel_netns::processors::Processors;
use evenkeel_ports::lose::Loss;
use evenkeel_ports::sys::{self, Signals};
use evenkeel_report::Report;
use evenkeel_router::Snapshot;
use evenkeel_scenario::Router;
use evenkeel_world::live::{LiveScenario, LiveStep, Measured, PORT, StepMeasured, report};

use crate::progress::Progress;
use crate::router_process::{RouterProcess, cpu_time};
use crate::world::{self, World};
use crate::{LabError, LabOptions};

use capture::Capture;
use numbers::Told;
use segment::{SWITCH, Station, name};
use source::Source;
use stranger::Stranger;

/// How long forwarders may take until they are in step.
const IN_STEP: Duration = Duration::from_secs(15);
/// The balancers give a forwarder flows when they have heard it for a while.
const HEARD: Duration = Duration::from_millis(200);
/// How long the queues may take to empty, and how long nothing comes then.
const EMPTYING: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_millis(150);

/// Runs a live cluster scenario and gives its report, judged. Everything is torn down when it
/// returns. With `without`, the steps of what must fail then.
///
/// # Errors
/// As [`run`](crate::run()).
pub fn run_live(scenario: &LiveScenario, options: &LabOptions) -> Result<Report, LabError> {
    if !sys::is_root() {
        return Err(LabError::NotRoot);
    }
    segment::require()?;
    let mut scenario = match &options.without {
        None => scenario.clone(),
        Some(name) => scenario.without(name)?,
    };
    for step in &mut scenario.steps {
        let scaled = |time: Nanos| Nanos((time.0 as f64 * options.time_scale) as u64);
        (step.time, step.settle) = (scaled(step.time), scaled(step.settle));
    }
    let lengths: Vec<_> =
        scenario.steps.iter().map(|step| (step.name.as_str(), step.settle + step.time)).collect();
    let progress = Progress::new(options.progress, &lengths);
    let signals = Signals::block()
        .map_err(|source| LabError::System { what: "watch for signals".into(), source })?;
    let _ = sys::allow_as_many_files_as_possible();
    let _first = Precedence::take();
    world::sweep();
    progress.say("making namespaces");
    let mut world = World::new()?;
    segment::build(&scenario, &mut world)?;
    let mut live = Live {
        capture: Capture::start(&scenario, &world)?,
        sources: (1..=scenario.nodes[0])
            .map(|n| Source::start(&scenario, n, &world))
            .collect::<Result<_, _>>()?,
        balancers: Vec::new(),
        forwarders: Vec::new(),
        running: None,
        signals,
        told: Told::default(),
        binary: options.binary.clone(),
        scenario: &scenario,
        world,
    };
    live.start_balancers()?;
    let mut measured = Measured { world: "lab", ..Measured::default() };
    let cpu = (cpu_time("self"), std::time::Instant::now());
    for step in &scenario.steps {
        progress.say(&step.name);
        measured.steps.push(live.step(step)?);
        progress.next(step.settle + step.time);
    }
    progress.finish();
    let own = (cpu_time("self") - cpu.0).as_secs_f64() / cpu.1.elapsed().as_secs_f64();
    measured.notes.extend(live.notes(own));
    measured.notes.append(&mut live.told.notes);
    Ok(report(&scenario, &measured, options.without.as_deref()))
}

/// This thread and all that it starts come before others of the machine while it lives: a forwarder
/// that waits for a processor for longer than `t_br` is late for its cycle, and a source that does
/// lets the queues run empty. None of them polls.
struct Precedence;

impl Precedence {
    fn take() -> Self {
        // Where it is not allowed, the figures are as good as the machine is quiet.
        let _ = sys::set_precedence(true);
        Self
    }
}

impl Drop for Precedence {
    fn drop(&mut self) {
        let _ = sys::set_precedence(false);
    }
}

/// A run that is going on. Fields go in this order: sources, routers, then the namespaces they are
/// in.
struct Live<'a> {
    sources: Vec<Source>,
    balancers: Vec<RouterProcess>,
    /// By number, from 0; `None` where none runs.
    forwarders: Vec<Option<RouterProcess>>,
    capture: Capture,
    /// What the forwarders were started with.
    running: Option<RouterConfig>,
    told: Told,
    signals: Signals,
    binary: std::path::PathBuf,
    scenario: &'a LiveScenario,
    world: World,
}

impl Live<'_> {
    fn start(&self, router: &Router) -> Result<RouterProcess, LabError> {
        let namespace = self.world.namespace(&router.name);
        RouterProcess::start(router, &namespace, self.world.folder(), Path::new(&self.binary))
    }

    fn start_balancers(&mut self) -> Result<(), LabError> {
        let forwarder = |number: usize| BalancerForwarder {
            id: number as u16,
            mac: StationAddress(segment::mac(Station::Forwarder, number)),
            ..BalancerForwarder::default()
        };
        let steps = self.scenario.steps.iter();
        let framing = steps.filter_map(|step| step.config.cluster.as_ref()).next();
        let framing = framing.map(|cluster| cluster.config.framing).unwrap_or_default();
        let section = BalancerSection {
            vlan: framing.vlan,
            key: framing.key,
            port_name: PORT.0.to_owned(),
            forwarders: (1..=self.scenario.nodes[1]).map(forwarder).collect(),
            ..BalancerSection::default()
        };
        for number in 1..=self.scenario.nodes[0] {
            let text = format!("[[port]]\nname = \"{}\"\ninterface = \"{}\"\n", PORT.0, PORT.1);
            let mut config = RouterConfig::parse(&text, "balancer")
                .map_err(|errors| LabError::BadInput(errors.to_string()))?;
            config.router.name = name(Station::Balancer, number);
            config.balancer = Some(section.clone());
            let router = Router { name: config.router.name.clone(), config };
            self.balancers.push(self.start(&router)?);
        }
        Ok(())
    }

    fn start_forwarder(&mut self, step: &LiveStep, number: u16) -> Result<(), LabError> {
        let config = step.forwarder(number);
        let process = self.start(&Router { name: config.router.name.clone(), config })?;
        self.forwarders[usize::from(number) - 1] = Some(process);
        Ok(())
    }

    /// Tells the balancers what a forwarder gets from now on.
    fn balance(&mut self, number: u16, state: ForwarderState) -> Result<(), LabError> {
        let request = Request::Balancer { forwarder: number, state: state.name().to_owned() };
        self.balancers.iter_mut().try_for_each(|balancer| balancer.request("balancer", &request))
    }

    /// All forwarders anew, with the configuration of the step.
    fn restart(&mut self, step: &LiveStep) -> Result<(), LabError> {
        self.forwarders.clear();
        self.forwarders.resize_with(self.scenario.nodes[1], || None);
        let absent = step.absent.clone().unwrap_or_default();
        let (off, on): (Vec<u16>, Vec<u16>) =
            (1..=self.scenario.nodes[1] as u16).partition(|number| absent.contains(number));
        for number in &on {
            self.start_forwarder(step, *number)?;
        }
        for number in on {
            self.balance(number, ForwarderState::Active)?;
        }
        for number in off {
            self.balance(number, ForwarderState::Out)?;
        }
        self.told.forget_flows();
        self.running = Some(step.config.clone());
        self.in_step()?;
        if step.config.cluster.is_some() { self.heard(&absent) } else { Ok(()) }
    }

    /// Waits until the balancers use all forwarders that run: one that was silent is used again
    /// after a while, and with no other what comes is dropped.
    fn heard(&mut self, absent: &[u16]) -> Result<(), LabError> {
        let begin = std::time::Instant::now();
        loop {
            self.look_for_signals()?;
            let mut all = true;
            for balancer in &mut self.balancers {
                let shown = balancer.snapshot()?.balancer.unwrap_or_default();
                let silent = |health: &str| !matches!(health, "heard" | "unknown");
                let mut used = shown.forwarders.iter().filter(|one| !absent.contains(&one.id));
                all &= !used.any(|one| silent(&one.health));
            }
            if all {
                return Ok(());
            }
            if begin.elapsed() > IN_STEP {
                return Err(LabError::Check("the balancers do not hear all forwarders".into()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until all forwarders that run follow one master and decide.
    fn in_step(&mut self) -> Result<(), LabError> {
        let begin = std::time::Instant::now();
        loop {
            self.look_for_signals()?;
            let shown = self.snapshots()?;
            let of: Vec<_> =
                shown.iter().flatten().map(|snapshot| snapshot.cluster.as_ref()).collect();
            let ready = of.iter().all(|cluster| {
                cluster.is_none_or(|cluster| {
                    cluster.in_step
                        && cluster.decided > 3
                        && cluster.master.is_some()
                        && cluster.present.len() == of.len()
                })
            });
            let masters: Vec<_> = of.iter().flatten().map(|cluster| cluster.master).collect();
            if ready && masters.windows(2).all(|pair| pair[0] == pair[1]) {
                return Ok(());
            }
            if begin.elapsed() > IN_STEP {
                return Err(LabError::Check(format!(
                    "the forwarders do not follow one master: {masters:?}"
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn snapshots(&mut self) -> Result<Vec<Option<Snapshot>>, LabError> {
        let shown = self
            .forwarders
            .iter_mut()
            .map(|forwarder| forwarder.as_mut().map(RouterProcess::snapshot));
        shown.map(Option::transpose).collect()
    }

    fn look_for_signals(&self) -> Result<(), LabError> {
        match self.signals.take() {
            Some(_) => Err(LabError::Interrupted),
            None => Ok(()),
        }
    }

    fn wait(&mut self, time: Duration) -> Result<(), LabError> {
        let end = std::time::Instant::now() + time;
        loop {
            self.look_for_signals()?;
            for router in self.forwarders.iter_mut().flatten().chain(&mut self.balancers) {
                router.check_alive()?;
            }
            let left = end.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }

    /// Time between two rounds of a source, so that all of them together offer this part of what a
    /// link carries.
    fn pause(&self, offer: f64) -> Nanos {
        let bits = (self.scenario.size.0 + 14) as f64 * 8.0;
        let packets = self.scenario.rate.0 as f64 / bits * offer;
        let each = packets / self.scenario.classes.len() as f64 / self.sources.len() as f64;
        Nanos((1e9 / each) as u64)
    }

    fn offer(&self, pause: Nanos) {
        self.sources.iter().for_each(|source| source.offer(pause));
    }

    fn step(&mut self, step: &LiveStep) -> Result<StepMeasured, LabError> {
        if self.running.as_ref() != Some(&step.config) || step.absent.is_some() {
            self.restart(step)?;
        }
        let losing = self.lose(step)?;
        let stranger = step.intruder.then(|| Stranger::start(&self.world)).transpose()?;
        self.capture.take();
        let (processors, holes) = (Processors::now(), self.capture.lost());
        let first = self.sources.iter().map(Source::next_id).collect();
        self.offer(self.pause(step.offer));
        self.wait(Duration::from_nanos(step.settle.0))?;
        let before = self.snapshots()?;
        let injected = stranger.as_ref().map_or(0, Stranger::sent);
        let begin = sys::monotonic_now();
        self.act(step)?;
        let left = step.time.saturating_sub(sys::monotonic_now() - begin);
        self.wait(Duration::from_nanos(left.0))?;
        let end = sys::monotonic_now();
        let injected = stranger.as_ref().map_or(0, Stranger::sent) - injected;
        drop(stranger);
        // What it sent last has been counted by then.
        std::thread::sleep(Duration::from_millis(20));
        let after = self.snapshots()?;
        self.offer(Nanos::ZERO);
        drop(losing);
        self.empty()?;
        let seen = self.capture.take();
        let holes = self.capture.lost() - holes;
        let not_judged = processors
            .missing()
            .or_else(|| (holes > 0).then(|| format!("the capture lost {holes} frames of it")));
        let last = self.sources.iter().map(Source::next_id).collect();
        let newest = self.sources.first().map_or(0..0, |source| source.newest(self.scenario.flows));
        Ok(self.told.of(
            step,
            &numbers::Window {
                links: self.scenario.nodes[2],
                classes: self.scenario.classes.len(),
                begin,
                end,
                seen,
                before,
                after,
                first,
                last,
                newest,
                injected,
                not_judged,
            },
        ))
    }

    fn lose(&self, step: &LiveStep) -> Result<Vec<Loss>, LabError> {
        let vlan = step.config.cluster.as_ref().map(|cluster| cluster.config.framing.vlan);
        let Some(vlan) = vlan.filter(|vlan| *vlan > 0 && step.loss > 0.0) else {
            return Ok(Vec::new());
        };
        let cannot = |source| LabError::System { what: "lose frames at the switch".into(), source };
        let attach = || {
            let ports = (1..=self.scenario.nodes[1]).map(|number| name(Station::Forwarder, number));
            ports.map(|port| Loss::attach(&port, vlan, step.loss)).collect::<Result<Vec<_>, _>>()
        };
        sys::in_netns(&self.world.namespace(SWITCH), attach).map_err(cannot)?.map_err(|error| {
            LabError::Kernel {
                what: "lose frames at the switch, which needs Linux 6.6".into(),
                said: error.to_string(),
            }
        })
    }

    /// What the step does.
    fn act(&mut self, step: &LiveStep) -> Result<(), LabError> {
        if let Some(number) = step.add {
            self.start_forwarder(step, number)?;
            self.in_step()?;
            self.wait(HEARD)?;
            self.balance(number, ForwarderState::Active)?;
        }
        if let Some(number) = step.drain {
            self.balance(number, ForwarderState::Draining)?;
        }
        if let Some(number) = step.kill {
            if let Some(mut process) = self.forwarders[usize::from(number) - 1].take() {
                process.kill();
            }
            self.told.killed(usize::from(number) - 1);
            // The balancers hear by themselves that it is silent.
        }
        if step.new_flows {
            self.sources.iter().for_each(Source::begin_flows);
        }
        Ok(())
    }

    /// Waits until nothing comes any more.
    fn empty(&mut self) -> Result<(), LabError> {
        let begin = std::time::Instant::now();
        let mut before = self.capture.count();
        loop {
            self.wait(QUIET)?;
            let now = self.capture.count();
            if now == before {
                return Ok(());
            }
            if begin.elapsed() > EMPTYING {
                return Err(LabError::Check("the queues do not empty".into()));
            }
            before = now;
        }
    }

    fn notes(&self, own: f64) -> Vec<String> {
        let skipped: u64 = self.sources.iter().map(Source::skipped).sum();
        let mut notes = vec![format!(
            "Each of {} balancers and {} forwarders was a process in a namespace of its own. \
             Processor time of sources and capture: {:.0} % of one processor.",
            self.balancers.len(),
            self.scenario.nodes[1],
            own * 100.0
        )];
        if skipped > 0 {
            notes.push(format!("Sources were late and left {skipped} rounds out."));
        }
        if self.capture.lost() > 0 {
            notes.push(format!(
                "The capture lost {} frames: what was counted from it is not exact.",
                self.capture.lost()
            ));
        }
        notes
    }
}
