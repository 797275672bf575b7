//! The disciplines of flow-aware links: `kind = "pfq"`, `"pdrr"`, `"afan"`.

use std::iter;

use evenkeel_core::schedule::afan::{AfanConfig, Afd};
use evenkeel_core::schedule::buffer::{Buffer, BufferLimit, KnownFlows, Victim};
use evenkeel_core::schedule::pdrr::PdrrConfig;
use evenkeel_core::schedule::pfq::PfqConfig;

use evenkeel_core::settings::quantity::{size_text, time_text};
use evenkeel_settings::read::{Fields, Reader};

/// The seed of flow lists until the router that builds the discipline puts its own in.
const NO_SEED: u64 = 0;

pub(crate) fn pfq(reader: &mut Reader, fields: &Fields) -> Option<PfqConfig> {
    Some(PfqConfig {
        quantum: fields.size("quantum")?,
        buffer: buffer(reader, fields)?,
        flows: flows(fields)?,
    })
}

pub(crate) fn pdrr(reader: &mut Reader, fields: &Fields) -> Option<PdrrConfig> {
    Some(PdrrConfig {
        quantum: fields.size("quantum")?,
        buffer: buffer(reader, fields)?,
        flows: flows(fields)?,
        afl_linger: fields.time("afl_linger")?,
    })
}

pub(crate) fn afan(fields: &Fields) -> Option<AfanConfig> {
    Some(AfanConfig {
        quantum: fields.size("quantum")?,
        limit: u32::try_from(fields.integer("limit")?).ok()?,
        flows: flows(fields)?,
        afd: afd(fields.table("afd")?)?,
        window: fields.time("window")?,
    })
}

/// The controller that a table says, which was read by its declaration.
pub(crate) fn afd(fields: &Fields) -> Option<Afd> {
    let whole = |key: &str| fields.integer(key).and_then(|value| u32::try_from(value).ok());
    // The range in the table is far within 32 bits.
    let gain = |key: &str| fields.number(key).map(|gain| (gain * 1e3 + 0.5) as u32);
    Some(Afd {
        shadow: whole("shadow")?,
        sample: whole("sample")?,
        target: whole("target")?,
        alpha: gain("alpha")?,
        beta: gain("beta")?,
        interval: fields.time("interval")?,
    })
}

fn buffer(reader: &mut Reader, fields: &Fields) -> Option<Buffer> {
    let limit = match fields.size("buffer_bytes") {
        Some(_) if fields.given("buffer") => {
            let message = "only one of `buffer` and `buffer_bytes` is possible";
            reader.fail(&fields.span("buffer_bytes"), fields.path_of("buffer_bytes"), message);
            return None;
        }
        Some(bytes) => BufferLimit::Bytes(bytes),
        None => BufferLimit::Packets(u32::try_from(fields.integer("buffer")?).ok()?),
    };
    Some(Buffer { limit, victim: victim(fields.text("victim")?) })
}

fn flows(fields: &Fields) -> Option<KnownFlows> {
    Some(KnownFlows {
        most: u32::try_from(fields.integer("flows")?).ok()?,
        start_limit: fields.size("start_limit"),
        seed: NO_SEED,
    })
}

/// The word of a configuration file, which its declaration has checked.
pub(crate) fn victim(word: &str) -> Victim {
    if word == "tail" { Victim::Tail } else { Victim::Head }
}

/// Knobs and their values as in a file.
type Settings = Vec<(String, String)>;

fn setting(key: &str, value: String) -> (String, String) {
    (key.to_owned(), value)
}

fn buffer_settings(buffer: &Buffer) -> [(String, String); 2] {
    let limit = match buffer.limit {
        BufferLimit::Packets(packets) => setting("buffer", packets.to_string()),
        BufferLimit::Bytes(bytes) => setting("buffer_bytes", size_text(bytes)),
    };
    let victim = if buffer.victim == Victim::Tail { "tail" } else { "head" };
    [limit, setting("victim", victim.to_owned())]
}

/// How many flows, what else the discipline has (`own`), and the bound of their start if there is one.
fn flow_settings(flows: &KnownFlows, own: impl IntoIterator<Item = (String, String)>) -> Settings {
    let most = setting("flows", flows.most.to_string());
    let start_limit = flows.start_limit.map(|limit| setting("start_limit", size_text(limit)));
    iter::once(most).chain(own).chain(start_limit).collect()
}

/// The knobs of PFQ and their values as in a file.
pub(crate) fn pfq_settings(config: &PfqConfig) -> Settings {
    let mut all = vec![setting("quantum", size_text(config.quantum))];
    all.extend(buffer_settings(&config.buffer));
    all.extend(flow_settings(&config.flows, None));
    all
}

/// The knobs of PDRR and their values as in a file.
pub(crate) fn pdrr_settings(config: &PdrrConfig) -> Settings {
    let mut all = vec![setting("quantum", size_text(config.quantum))];
    all.extend(buffer_settings(&config.buffer));
    all.extend(flow_settings(&config.flows, [setting("afl_linger", time_text(config.afl_linger))]));
    all
}

/// The knobs of AFAN and their values as in a file.
pub(crate) fn afan_settings(config: &AfanConfig) -> Settings {
    let Afd { shadow, sample, target, alpha, beta, interval } = config.afd;
    let gain = |thousandths: u32| f64::from(thousandths) / 1e3;
    let afd = format!(
        "{{ shadow = {shadow}, sample = {sample}, target = {target}, alpha = {}, beta = {}, interval = {:?} }}",
        gain(alpha),
        gain(beta),
        time_text(interval)
    );
    let own = [setting("window", time_text(config.window)), setting("afd", afd)];
    let mut all =
        vec![setting("quantum", size_text(config.quantum)), setting("limit", config.limit.to_string())];
    all.extend(flow_settings(&config.flows, own));
    all
}
