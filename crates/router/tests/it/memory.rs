//! F8: what a configuration is said to take is what it takes at most, and not much more.

use evenkeel_config::RouterConfig;
use evenkeel_core::Nanos;
use evenkeel_router::Disciplines;
use evenkeel_router::memory::Footprint;
use evenkeel_router::pipeline::Pipeline;

const PORTS: &str = "[[port]]\nname = \"a\"\ninterface = \"a\"\n[[port]]\nname = \"b\"\n\
    interface = \"b\"\n[[class]]\nname = \"rest\"\n[[class]]\nname = \"bulk\"\n";

/// What the pipeline allocates, and what is said of it, both without what even the smallest router
/// has.
fn allocated_and_said(rest: &str) -> (u64, u64) {
    let bytes = |rest: &str| {
        let text = format!("{PORTS}{rest}");
        let config = RouterConfig::parse(&text, "test").unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        let said = Footprint::of(&config);
        let measured = allocation_counter::measure(|| {
            let (now, own) = (Nanos::ZERO, Disciplines::default());
            let mut pipeline = Pipeline::for_worker(&config, now, own, None).unwrap();
            // As at the start of a worker, which knows its ports by then.
            pipeline.set_ring_frames(4_096).unwrap();
        });
        // Buffers are mapped, not allocated.
        (measured.bytes_max, said.total() - said.buffers)
    };
    let small = "[[link]]\nport = \"a\"\ndiscipline = { kind = \"fifo\", limit = 1 }\n\
        [[link]]\nport = \"b\"\ndiscipline = { kind = \"fifo\", limit = 1 }\n";
    let (none, said_none) = bytes(small);
    let (with, said) = bytes(rest);
    (with.saturating_sub(none), said.saturating_sub(said_none))
}

#[test]
fn f8_what_a_file_takes_is_told_from_above_and_closely() {
    let link = |rest: &str| {
        format!(
            "[[link]]\nport = \"a\"\nrate = \"100Mbit/s\"\n{rest}\n[[link]]\nport = \"b\"\n\
             discipline = {{ kind = \"fifo\", limit = 1 }}\n"
        )
    };
    let admitted = |rest: &str| {
        link(&format!(
            "discipline = {{ kind = \"pdrr\", flows = 1, buffer = 1 }}\n[link.admission]\n\
             eccm = false\nflows = 1\nhistory = 1\n{rest}"
        ))
    };
    let cases = [
        link("discipline = { kind = \"fifo\", limit = 65_536 }"),
        link("discipline = { kind = \"lct\", limit = 65_536 }"),
        link("discipline = { kind = \"wfq-altq\", limit = 65_536 }"),
        link("discipline = { kind = \"wfq-altq\", drop = \"longest\", high_water = \"16MiB\" }"),
        link("discipline = { kind = \"pfq\", flows = 100_000, buffer = 1 }"),
        link("discipline = { kind = \"pfq\", flows = 1, buffer = 100_000 }"),
        link("discipline = { kind = \"pfq\", flows = 1, buffer_bytes = \"16MiB\" }"),
        link("discipline = { kind = \"pdrr\", flows = 131_073, buffer = 1 }"),
        link("discipline = { kind = \"pdrr\", flows = 1, buffer = 100_000 }"),
        link("discipline = { kind = \"afan\", flows = 100_000, limit = 65_536 }"),
        admitted("flows = 100_000").replace("flows = 1\nh", "h"),
        admitted("history = 100_000").replace("history = 1\n", ""),
        admitted("per_user = true\nusers = 100_000"),
        admitted("flushing = \"rpaef\"\nflush_table = 100_000"),
        admitted("eccm_table = 100_000").replace("eccm = false", "eccm = true"),
        admitted("global_list = true\n[flows]\nglobal_list = 200_000"),
        admitted("global_list = false\n[flows]\nglobal_list = 200_000"),
        link("discipline = { kind = \"fifo\", limit = 1 }")
            + "[fairdrop]\non = true\nflows = 65_536\n",
    ];
    let mut wrong = Vec::new();
    for case in &cases {
        let (allocated, said) = allocated_and_said(case);
        println!("{allocated:>10} {said:>10} {:.2}  {case:?}", said as f64 / allocated as f64);
        if allocated > said || said > 2 * allocated + (1 << 20) {
            wrong.push((allocated, said, case));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
