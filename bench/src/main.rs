//! Measurements side by side. Not a test: it prints ratios, spreads and what the machine did meanwhile.
//!
//! `evenkeel-bench memory | instructions | live`; `make bench` runs all three.

mod disciplines;
mod instructions;
mod memory;
mod pipeline;
mod timing;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["memory"] => memory::run(),
        ["instructions"] => instructions::run(),
        ["one", case, packets] => instructions::one(case, packets.parse().expect("a number of packets")),
        _ => {
            eprintln!("usage: evenkeel-bench memory | instructions | live EVENKEEL");
            std::process::exit(2);
        }
    }
}
