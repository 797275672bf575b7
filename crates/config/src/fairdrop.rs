//! `[fairdrop]`: fair shares of cycles and bits by early dropping.

use evenkeel_core::drop::{BandwidthConfig, CpuConfig, FlowTableConfig, Rule, Share};
use evenkeel_core::{BitRate, Bytes, Cycles};

use crate::change::ChangeError;
use crate::discipline::by_class;
use crate::tables;
use evenkeel_core::settings::quantity::{size_text, time_text};
use evenkeel_settings::read::{Fields, Reader, Value, parse_toml};

/// `[fairdrop]`, defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct FairDropConfig {
    /// Whether it drops.
    pub on: bool,
    /// Whether flows share the worker's cycles.
    pub cpu: bool,
    /// Whether flows share the bits of links.
    pub bandwidth: bool,
    /// Flows and what those of each class are due; the row of a class is its index.
    pub table: FlowTableConfig,
    /// What a packet is believed to take until it was measured.
    pub cost: Cycles,
    /// The rule for cycles.
    pub rule: Rule,
    /// Thousandths of a link's rate that are shared out.
    pub theta: u16,
    /// What a flow may have waiting for a link.
    pub threshold: Bytes,
    /// What all may have waiting.
    pub buffer: Bytes,
}

impl FairDropConfig {
    /// Every default, but switched off.
    #[must_use]
    pub fn off(classes: &[&str]) -> Self {
        let (table, mut reader) = parse_toml("on = false", "");
        let fields = reader.table(&tables::fairdrop::FAIRDROP, &table, 0..0, "fairdrop");
        fairdrop_of(&mut reader, &fields, classes)
            .expect("the defaults of the table are valid, which its tests read")
    }

    /// The form of the core for a worker with `services` services, whose clock has `hertz` cycles per second, whose ports' receive rings hold `ring` frames
    /// and who fetches at most `batch` at once. Class 0 of processing is plain forwarding, class `n` service `n - 1`.
    #[must_use]
    pub fn cpu_config(&self, services: usize, hertz: u64, batch: u16, ring: u32) -> CpuConfig {
        CpuConfig {
            table: self.table.clone(),
            costs: vec![self.cost; services + 1],
            clock: hertz,
            batch,
            ring: ring.max(batch.into()),
            rule: self.rule,
        }
    }

    /// The form of the core for a link of `rate`.
    #[must_use]
    pub fn bandwidth_config(&self, rate: BitRate) -> BandwidthConfig {
        BandwidthConfig {
            table: self.table.clone(),
            rate,
            theta: self.theta,
            threshold: self.threshold,
            buffer: self.buffer,
        }
    }

    /// This configuration with the key `name` at `value`, as it would stand in `router.toml` without quotes. `classes` are the names of the classes.
    ///
    /// # Errors
    /// No such key (with the nearest), or a value out of its range (with the range).
    pub fn changed(&self, name: &str, value: &str, classes: &[&str]) -> Result<Self, ChangeError> {
        let known: Vec<_> = tables::fairdrop::FAIRDROP.keys().map(|key| key.name).collect();
        if !known.contains(&name) {
            let message =
                format!("no key {name:?} in [fairdrop]; {}", evenkeel_settings::read::suggest(name, &known));
            return Err(ChangeError(message));
        }
        let mut entries = self.entries(classes);
        entries.retain(|(key, _)| key != name);
        let value = value.trim();
        let as_toml = |text: &str| text.parse::<toml::Value>().is_ok();
        // A word or a quantity stands without quotes on a command line.
        let value = if as_toml(value) { value.to_owned() } else { toml::Value::from(value).to_string() };
        entries.push((name.to_owned(), value));
        let body: String = entries.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        let (table, mut reader) = parse_toml(&body, "");
        let fields = reader.table(&tables::fairdrop::FAIRDROP, &table, 0..0, "fairdrop");
        let config = fairdrop_of(&mut reader, &fields, classes);
        crate::change::concluded(reader, config)
    }

    /// Every key and its value as a file has them.
    #[must_use]
    pub fn entries(&self, classes: &[&str]) -> Vec<(String, String)> {
        let thousandths = |value: u16| format!("{:?}", f64::from(value) / 1_000.0);
        let quoted = |text: String| toml::Value::from(text).to_string();
        let by_class = |value: &dyn Fn(usize) -> u16| {
            let each: Vec<_> = classes
                .iter()
                .enumerate()
                .map(|(at, class)| format!("{} = {}", quoted((*class).to_owned()), value(at)))
                .collect();
            format!("{{ {} }}", each.join(", "))
        };
        let share = |at: usize| self.table.shares.get(at).copied().unwrap_or(Share { weight: 1, group: 0 });
        let rule = match self.rule {
            Rule::Level { burst, overhead } => {
                format!(
                    "kind = \"level\", burst = {}, overhead = {}",
                    quoted(time_text(burst)),
                    thousandths(overhead)
                )
            }
            Rule::Kappa { kappa } => format!("kind = \"kappa\", kappa = {}", thousandths(kappa)),
            Rule::Fixed { threshold } => format!("kind = \"fixed\", cycles = {}", threshold.0),
            Rule::MimdBatch { down, up, min, max } => format!(
                "kind = \"mimd-batch\", down = {}, up = {}, min = {}, max = {}",
                thousandths(down),
                thousandths(up),
                min.0,
                max.0
            ),
            Rule::MimdRing { down, up, high, low, start } => format!(
                "kind = \"mimd-ring\", down = {}, up = {}, high = {high}, low = {low}, start = {}",
                thousandths(down),
                thousandths(up),
                start.0
            ),
        };
        let grouped = self.is_grouped();
        let group_weight =
            |at: usize| if grouped { self.table.groups.get(at).copied().unwrap_or(1) } else { 1 };
        [
            ("on", self.on.to_string()),
            ("cpu", self.cpu.to_string()),
            ("bandwidth", self.bandwidth.to_string()),
            ("flows", self.table.flows.to_string()),
            ("weight", by_class(&|at| share(at).weight)),
            ("groups", quoted(if grouped { "class" } else { "none" }.to_owned())),
            ("group_weight", by_class(&group_weight)),
            ("cost", self.cost.0.to_string()),
            ("rule", format!("{{ {rule} }}")),
            ("theta", thousandths(self.theta)),
            ("threshold", quoted(size_text(self.threshold))),
            ("buffer", quoted(size_text(self.buffer))),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
    }

    pub(crate) fn is_grouped(&self) -> bool {
        self.table.groups.len() > 1
    }
}

/// Reads the table; `None` after an error that the reader has taken note of.
pub(crate) fn fairdrop_of(reader: &mut Reader, fields: &Fields, classes: &[&str]) -> Option<FairDropConfig> {
    let whole = |value: &Value| match value {
        Value::Integer(value) => u16::try_from(*value).ok(),
        _ => None,
    };
    let weights = by_class(reader, fields, "weight", classes, whole)?;
    let group_weights = by_class(reader, fields, "group_weight", classes, whole)?;
    let grouped = fields.text("groups")? == "class" && classes.len() > 1;
    if grouped && classes.len() > FlowTableConfig::MAX_GROUPS {
        let message =
            format!("{} classes: at most {} can be groups", classes.len(), FlowTableConfig::MAX_GROUPS);
        reader.fail(&fields.span("groups"), fields.path_of("groups"), message);
        return None;
    }
    if !grouped && group_weights.iter().any(|weight| *weight != 1) {
        let message = "it needs groups = \"class\", and several classes";
        reader.fail(&fields.span("group_weight"), fields.path_of("group_weight"), message);
    }
    // Rows beyond the 256 that the core has share the last.
    let shares = weights
        .iter()
        .enumerate()
        .take(256)
        .map(|(at, weight)| Share { weight: *weight, group: if grouped { at as u8 } else { 0 } });
    let mut table = FlowTableConfig {
        flows: u32::try_from(fields.integer("flows")?).ok()?,
        shares: shares.collect(),
        groups: if grouped { group_weights } else { vec![1] },
    };
    if table.shares.is_empty() {
        table.shares.push(Share { weight: 1, group: 0 });
    }
    let rule = fields.table("rule")?;
    Some(FairDropConfig {
        on: fields.switch("on")?,
        cpu: fields.switch("cpu")?,
        bandwidth: fields.switch("bandwidth")?,
        table,
        cost: Cycles(fields.integer("cost")?),
        rule: rule_of(reader, rule)?,
        theta: thousandths(fields.number("theta")?),
        threshold: fields.size("threshold")?,
        buffer: fields.size("buffer")?,
    })
}

fn rule_of(reader: &mut Reader, fields: &Fields) -> Option<Rule> {
    let part = |key: &str| fields.number(key).map(thousandths);
    let cycles = |key: &str| fields.integer(key).map(Cycles);
    let frames = |key: &str| fields.integer(key).and_then(|frames| u32::try_from(frames).ok());
    let rule = match fields.kind? {
        "kappa" => Rule::Kappa { kappa: part("kappa")? },
        "fixed" => Rule::Fixed { threshold: cycles("cycles")? },
        "mimd-batch" => {
            Rule::MimdBatch { down: part("down")?, up: part("up")?, min: cycles("min")?, max: cycles("max")? }
        }
        "mimd-ring" => Rule::MimdRing {
            down: part("down")?,
            up: part("up")?,
            high: frames("high")?,
            low: frames("low")?,
            start: cycles("start")?,
        },
        _ => Rule::Level { burst: fields.time("burst")?, overhead: part("overhead")? },
    };
    // What no range of a single key can say: min above max, low above high.
    if let Err(error) = rule.check() {
        reader.fail(&fields.at, fields.path.clone(), error.to_string());
        return None;
    }
    Some(rule)
}

/// The ranges in the tables keep the result within 16 bits.
fn thousandths(value: f64) -> u16 {
    (value * 1_000.0).round() as u16
}
