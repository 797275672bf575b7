//! The programs of the system that the lab cannot do without.

use evenkeel_netns::shell::is_installed;

use crate::LabError;

/// The programs that every run needs, what for, and the Debian package that has each.
pub(crate) const ALWAYS: [(&str, &str, &str); 3] = [
    ("ip", "namespaces, veth pairs, addresses, routes", "iproute2"),
    ("ping", "checking the wires before the run", "iputils-ping"),
    ("ethtool", "switching off the offloads of hosts", "ethtool"),
];

/// Finds out whether a program is there.
///
/// # Errors
/// [`LabError::MissingTool`] with the package to install.
pub(crate) fn require(
    (program, what_for, package): (&'static str, &'static str, &'static str),
) -> Result<(), LabError> {
    if is_installed(program) {
        Ok(())
    } else {
        Err(LabError::MissingTool { program, what_for, package })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error =
            require(("no-such-program-here", "testing", "no-package")).expect_err("it is missing");
        assert_eq!(error.exit_code(), 3);
        assert!(error.to_string().contains("apt-get install no-package"), "{error}");
        require(("sh", "testing", "dash")).expect("a shell is always there");
    }
}
