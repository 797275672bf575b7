//! The programs of the system that the lab cannot do without.

use evenkeel_netns::shell::is_installed;

use crate::LabError;

/// A program, what for, and the Debian package that has it.
pub(crate) type Program = (&'static str, &'static str, &'static str);

/// The programs that every run needs.
pub(crate) const ALWAYS: [Program; 3] = [
    ("ip", "namespaces, veth pairs, addresses, routes", "iproute2"),
    ("ping", "checking the wires before the run", "iputils-ping"),
    ("ethtool", "switching off the offloads of hosts", "ethtool"),
];

/// The program that scenarios with a queueing discipline of Linux need besides.
pub(crate) const TC: Program = ("tc", "queueing disciplines of Linux", "iproute2");

/// Finds out whether programs are there.
///
/// # Errors
/// [`LabError::MissingTools`] with all that are missing, and the packages to install.
pub(crate) fn require(programs: impl IntoIterator<Item = Program>) -> Result<(), LabError> {
    let missing = programs.into_iter().filter(|(program, ..)| !is_installed(program));
    let missing: Vec<Program> = missing.collect();
    if missing.is_empty() {
        return Ok(());
    }
    let told = missing.iter().map(|(program, what_for, _)| format!("{program} ({what_for})"));
    let mut packages: Vec<&str> = missing.iter().map(|(.., package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    let (programs, packages) = (told.collect::<Vec<_>>().join(", "), packages.join(" "));
    Err(LabError::MissingTools { programs, packages })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_missing_programs_are_named_with_their_packages() {
        let missing = [
            ("no-such-program-here", "testing", "no-package"),
            ("sh", "testing", "dash"),
            ("nor-this-one", "more testing", "another"),
            ("nor-that-one", "more testing", "another"),
        ];
        let error = require(missing).expect_err("they are missing");
        assert_eq!(error.exit_code(), 3);
        let text = error.to_string();
        assert!(text.contains("no-such-program-here (testing), nor-this-one"), "{text}");
        assert!(text.ends_with("apt-get install another no-package"), "{text}");
        require([("sh", "testing", "dash")]).expect("a shell is always there");
    }
}
