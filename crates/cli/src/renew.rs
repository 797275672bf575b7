//! `evenkeel renew`: what a service manager does to reload the router. A router of the same program
//! reads its file again; one of another program goes on in a new process, of this program.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

use crate::args::RenewArgs;
use crate::failure::{Failure, Outcome};
use crate::out::print;

/// How long the new process may take until the former one ends.
const PATIENCE: Duration = Duration::from_secs(150);
const LOOK: Duration = Duration::from_millis(50);

pub(crate) fn renew(args: &RenewArgs) -> Outcome {
    let pid = args.pid;
    let running = format!("/proc/{pid}/exe");
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(1, format!("no router runs as process {pid}: {error}"))
    };
    let old = identity(Path::new(&running)).map_err(|error| failed(&error))?;
    let own = identity(Path::new("/proc/self/exe")).map_err(|error| failed(&error))?;
    let system = |error: std::io::Error| Failure::new(1, format!("starting this program: {error}"));
    let program = std::env::current_exe().map_err(system)?;
    if old == own {
        // It waits for the answer, and says why a file is refused.
        return Err(system(Command::new(program).args(["ctl", "reload"]).arg(&args.file).exec()));
    }
    // A group of its own: it stays when the service manager is done with this command.
    let mut new = Command::new(program)
        .args(["run", "--take-over"])
        .arg(&args.file)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(system)?;
    // Before the former process ends: a service whose main process ends is over.
    main_process(new.id());
    let begin = Instant::now();
    while identity(Path::new(&running)).is_ok_and(|now| now == old) {
        if let Some(status) = new.try_wait().map_err(system)? {
            main_process(pid);
            let text = format!("the new program ended with {status}, and the former one goes on");
            return Err(Failure::new(1, text));
        }
        if begin.elapsed() > PATIENCE {
            main_process(pid);
            // It would take over some time, when nobody expects it.
            let _ = new.kill();
            let _ = new.wait();
            let text = "the new program did not take over in time; the former one goes on";
            return Err(Failure::new(1, text));
        }
        std::thread::sleep(LOOK);
    }
    print(&format!("process {} goes on with the router of process {pid}\n", new.id()))
}

/// Tells the service manager, if there is one, which process the service is.
fn main_process(pid: u32) {
    let _ = sd_notify::notify(&[NotifyState::MainPid(pid)]);
}

/// Which file a program is: another one, also at the same path, is another program.
fn identity(program: &Path) -> std::io::Result<(u64, u64)> {
    fs::metadata(program).map(|known| (known.dev(), known.ino()))
}
