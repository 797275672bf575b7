//! The disciplines of flow-aware links: `kind = "pfq"`, `"pdrr"`, `"afan"`.

use evenkeel_core::schedule::afan::{AfanConfig, Afd};
use evenkeel_core::schedule::buffer::{BufferLimit, Victim};
use evenkeel_core::schedule::pdrr::PdrrConfig;
use evenkeel_core::schedule::pfq::PfqConfig;

use crate::quantity::{size_text, time_text};
use crate::read::{Fields, Reader};

/// The seed of flow lists until the router that builds the discipline puts its own in.
const NO_SEED: u64 = 0;

pub(crate) fn pfq(reader: &mut Reader, fields: &Fields) -> Option<PfqConfig> {
    Some(PfqConfig {
        quantum: fields.size("quantum")?,
        buffer: buffer(reader, fields)?,
        victim: victim(fields.text("victim")?),
        flows: u32::try_from(fields.integer("flows")?).ok()?,
        start_limit: fields.size("start_limit"),
        seed: NO_SEED,
    })
}

pub(crate) fn pdrr(reader: &mut Reader, fields: &Fields) -> Option<PdrrConfig> {
    Some(PdrrConfig {
        quantum: fields.size("quantum")?,
        buffer: buffer(reader, fields)?,
        victim: victim(fields.text("victim")?),
        flows: u32::try_from(fields.integer("flows")?).ok()?,
        afl_linger: fields.time("afl_linger")?,
        start_limit: fields.size("start_limit"),
        seed: NO_SEED,
    })
}

pub(crate) fn afan(fields: &Fields) -> Option<AfanConfig> {
    Some(AfanConfig {
        quantum: fields.size("quantum")?,
        limit: u32::try_from(fields.integer("limit")?).ok()?,
        flows: u32::try_from(fields.integer("flows")?).ok()?,
        afd: afd(fields.table("afd")?)?,
        window: fields.time("window")?,
        start_limit: fields.size("start_limit"),
        seed: NO_SEED,
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

fn buffer(reader: &mut Reader, fields: &Fields) -> Option<BufferLimit> {
    match fields.size("buffer_bytes") {
        Some(_) if fields.given("buffer") => {
            let message = "only one of `buffer` and `buffer_bytes` is possible";
            reader.fail(&fields.span("buffer_bytes"), fields.path_of("buffer_bytes"), message);
            None
        }
        Some(bytes) => Some(BufferLimit::Bytes(bytes)),
        None => Some(BufferLimit::Packets(u32::try_from(fields.integer("buffer")?).ok()?)),
    }
}

/// The word of a configuration file, which its declaration has checked.
pub(crate) fn victim(word: &str) -> Victim {
    if word == "tail" { Victim::Tail } else { Victim::Head }
}

/// Key and value of a limit as in a file.
fn buffer_text(buffer: BufferLimit) -> (String, String) {
    match buffer {
        BufferLimit::Packets(packets) => ("buffer".to_owned(), packets.to_string()),
        BufferLimit::Bytes(bytes) => ("buffer_bytes".to_owned(), size_text(bytes)),
    }
}

fn victim_text(victim: Victim) -> String {
    if victim == Victim::Tail { "tail" } else { "head" }.to_owned()
}

/// The knobs of PFQ and their values as in a file.
pub(crate) fn pfq_settings(config: &PfqConfig) -> Vec<(String, String)> {
    let mut all = vec![
        ("quantum".to_owned(), size_text(config.quantum)),
        buffer_text(config.buffer),
        ("victim".to_owned(), victim_text(config.victim)),
        ("flows".to_owned(), config.flows.to_string()),
    ];
    all.extend(config.start_limit.map(|limit| ("start_limit".to_owned(), size_text(limit))));
    all
}

/// The knobs of PDRR and their values as in a file.
pub(crate) fn pdrr_settings(config: &PdrrConfig) -> Vec<(String, String)> {
    let mut all = vec![
        ("quantum".to_owned(), size_text(config.quantum)),
        buffer_text(config.buffer),
        ("victim".to_owned(), victim_text(config.victim)),
        ("flows".to_owned(), config.flows.to_string()),
        ("afl_linger".to_owned(), time_text(config.afl_linger)),
    ];
    all.extend(config.start_limit.map(|limit| ("start_limit".to_owned(), size_text(limit))));
    all
}

/// The knobs of AFAN and their values as in a file.
pub(crate) fn afan_settings(config: &AfanConfig) -> Vec<(String, String)> {
    let Afd { shadow, sample, target, alpha, beta, interval } = config.afd;
    let gain = |thousandths: u32| f64::from(thousandths) / 1e3;
    let afd = format!(
        "{{ shadow = {shadow}, sample = {sample}, target = {target}, alpha = {}, beta = {}, interval = {:?} }}",
        gain(alpha),
        gain(beta),
        time_text(interval)
    );
    let mut all = vec![
        ("quantum".to_owned(), size_text(config.quantum)),
        ("limit".to_owned(), config.limit.to_string()),
        ("flows".to_owned(), config.flows.to_string()),
        ("window".to_owned(), time_text(config.window)),
        ("afd".to_owned(), afd),
    ];
    all.extend(config.start_limit.map(|limit| ("start_limit".to_owned(), size_text(limit))));
    all
}
