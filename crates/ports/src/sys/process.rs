//! The calling thread and process: timer slack, processor, privilege, and children that do not outlive their parent.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use evenkeel_core::Nanos;

use super::check;

/// Sets by how much the kernel may delay the calling thread's time-outs to wake once for several (default 50 us). At
/// least 1 ns; threads started later inherit it.
///
/// # Errors
/// None that the argument could cause.
pub fn set_timer_slack(slack: Nanos) -> io::Result<()> {
    let slack = slack.0.clamp(1, libc::c_ulong::MAX) as libc::c_ulong;
    // SAFETY: this option takes a number.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack) })?;
    Ok(())
}

/// Puts the calling thread before all ordinary threads of the machine (`SCHED_RR` at its lowest priority), or among them again; threads and processes that it
/// starts later inherit it. Not for threads that poll: the kernel stops such threads for 50 ms of each second.
///
/// # Errors
/// Needs CAP_SYS_NICE.
pub fn set_precedence(first: bool) -> io::Result<()> {
    let (policy, sched_priority) = if first { (libc::SCHED_RR, 1) } else { (libc::SCHED_OTHER, 0) };
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: the parameters outlive the call; zero is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) })?;
    Ok(())
}

/// Gives the calling thread a larger (negative) or smaller part of a processor that it shares with others, by so many steps of its nice value, which is -20 to
/// 19; each step is a quarter. Others are not kept waiting altogether. Threads started later inherit it.
///
/// # Errors
/// More needs CAP_SYS_NICE.
pub fn change_nice(steps: i32) -> io::Result<()> {
    // Not `getpriority`, whose -1 may be a value or an error: the system call itself says 20 less the value.
    // SAFETY: takes numbers; zero is the calling thread.
    let rank = check(unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, 0) } as libc::c_int)?;
    let nice = (20 - rank).saturating_add(steps).clamp(-20, 19);
    // SAFETY: as above.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) })?;
    Ok(())
}

/// Ties the calling thread to one processor.
///
/// # Errors
/// There is no such processor, or the process may not use it.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: cpu_set_t is plain data; CPU_SET is given a number below CPU_SETSIZE.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        set
    };
    set_affinity(&set)
}

/// Lets the calling thread run on every processor again.
///
/// # Errors
/// The process is confined to processors that are off.
pub fn drop_cpu_affinity() -> io::Result<()> {
    // SAFETY: cpu_set_t is plain data; CPU_SET is given numbers below CPU_SETSIZE.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for cpu in 0..libc::CPU_SETSIZE as usize {
            libc::CPU_SET(cpu, &mut set);
        }
        set
    };
    set_affinity(&set)
}

fn set_affinity(set: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: `set` is readable for its size; 0 is the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) })?;
    Ok(())
}

/// Whether the process runs as root.
#[must_use]
pub fn is_root() -> bool {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Raises the limit of open descriptors as far as allowed; returns the limit.
///
/// # Errors
/// None that is known.
pub fn allow_as_many_files_as_possible() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a writable rlimit.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is a readable rlimit.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
    Ok(limit.rlim_cur)
}

/// Whether the calling thread may lock memory beyond the limit.
pub(crate) fn may_lock_beyond_limit() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .is_some_and(|set| set & CAP_IPC_LOCK != 0)
}

const CAP_IPC_LOCK: u64 = 1 << 14;

/// How much memory the process may lock, bytes; `None`: there is no limit, or it cannot be told.
pub(crate) fn limit_of_locked_memory() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a writable rlimit.
    check(unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) }).ok()?;
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Makes the child be killed when the *thread* that starts it ends, however it ends: so start it from a thread that
/// lives as long as the child shall.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let parent = std::process::id();
    // SAFETY: the closure makes two system calls that are safe after fork, and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong))?;
            // The parent may have ended before the wish was expressed.
            if libc::getppid() as u32 != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_be_tied_and_released() {
        std::thread::spawn(|| {
            pin_to_cpu(0).unwrap();
            // SAFETY: takes nothing.
            assert_eq!(unsafe { libc::sched_getcpu() }, 0);
            assert!(pin_to_cpu(1_000_000).is_err());
            drop_cpu_affinity().unwrap();
            set_timer_slack(Nanos(1)).unwrap();
            // SAFETY: takes a number.
            assert_eq!(unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) }, 1);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_child_dies_with_the_thread_that_started_it() {
        let child = std::thread::spawn(|| {
            let mut command = Command::new("sleep");
            die_with_parent(command.arg("1000")).spawn().unwrap()
        });
        let mut child = child.join().unwrap();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}
