//! The rules: what each fact means for shaping, and what to do about it.

mod machine;
mod nic;

use crate::facts::Facts;
use crate::finding::{Finding, Findings};
use crate::line::Line;
use crate::second::Second;

/// Findings about the machine, then about each interface.
#[must_use]
pub fn judge(facts: &Facts, second: &Second, lines: &[Line]) -> Vec<Finding> {
    let mut found = machine::judge(&facts.machine, second, lines);
    for nic in &facts.nics {
        let traffic = second.nics.iter().find(|traffic| traffic.name == nic.name);
        let line = lines.iter().find(|line| line.interface == nic.name);
        found.extend(nic::judge(nic, traffic, line, &facts.machine));
    }
    for (name, known) in &facts.missing {
        let mut missing = Findings::about(name);
        let known: Vec<&str> = known.iter().map(String::as_str).filter(|of| *of != "lo").collect();
        missing.bad(
            "interface",
            "there is none of this name",
            format!("take one of: {}", known.join(", ")),
        );
        found.append(&mut missing.found);
    }
    found
}
