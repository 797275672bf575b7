//! A container may have a clock of its own, which programs in the kernel do not read. Needs root.

use std::process::Command;

use crate::common::available;

/// What looks at the time in the kernel: at the ingress of the stack, in the driver, and before a
/// frame.
const TESTS: [&str; 3] = [
    "guard::a_router_that_hangs_is_passed_by_and_takes_over_again",
    "af_xdp::a_worker_that_hangs_leaves_its_frames_to_the_kernel",
    "af_xdp::transit_frames_arrive_once_in_order_and_stamped_and_go_back_where_they_lie",
];

/// Behind the kernel's clock everything was passed by; ahead of it nothing was, whoever hung.
#[test]
fn hearts_beat_and_frames_are_stamped_by_the_clock_of_the_process() {
    if !available("time_namespace") {
        return;
    }
    for ahead in ["-30", "1000"] {
        let mut command = Command::new("unshare");
        command.args(["--time", "--monotonic", ahead, "--boottime", ahead]);
        command.arg(std::env::current_exe().unwrap()).arg("--exact").args(TESTS);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("3 passed"), "{ahead} s: {said}");
    }
}
