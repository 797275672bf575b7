//! The calling thread and process: timer slack, processor, privilege, and children that do not
//! outlive their parent.

use std::io;
use std::num::NonZeroU64;
use std::os::unix::process::CommandExt;
use std::process::Command;

use evenkeel_core::Nanos;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};

/// From now on nothing that the calling thread starts has more rights than it, whatever its file
/// says; threads and processes that it starts later inherit that.
///
/// # Errors
/// None.
pub fn gain_no_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Has the allocator take blocks of a mebibyte and more from the kernel one by one, and give each
/// back when it is freed. By itself glibc comes to keep freed blocks of up to 32 MiB in the arena
/// of the thread that made them, where no other thread finds them: tables that came and went held
/// half a gigabyte, and others were refused for want of memory. Before the first thread.
pub fn give_back_large_blocks() {
    // SAFETY: it changes a number of the allocator's; blocks that exist stay as they are. It
    // cannot fail for a threshold below 32 MiB, and if it did only memory would be lost.
    #[cfg(target_env = "gnu")]
    let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20) };
}

/// Sets by how much the kernel may delay the calling thread's time-outs to wake once for several
/// (default 50 us). At least 1 ns; threads started later inherit it.
///
/// # Errors
/// None that the argument could cause.
pub fn set_timer_slack(slack: Nanos) -> io::Result<()> {
    // Zero would mean the default.
    let slack = NonZeroU64::new(slack.0).unwrap_or(NonZeroU64::MIN);
    Ok(rustix::thread::set_current_timer_slack(Some(slack))?)
}

/// Puts the calling thread before all ordinary threads of the machine (`SCHED_RR` at its lowest
/// priority), or among them again; threads and processes that it starts later inherit it. Not for
/// threads that poll: the kernel stops such threads for 50 ms of each second.
///
/// # Errors
/// Needs CAP_SYS_NICE.
pub fn set_precedence(first: bool) -> io::Result<()> {
    let (policy, sched_priority) = if first { (libc::SCHED_RR, 1) } else { (libc::SCHED_OTHER, 0) };
    // What the kernel knows of `sched_param`. musl's function of this name does nothing.
    let parameters: libc::c_int = sched_priority;
    // SAFETY: the parameters outlive the call; zero is the calling thread.
    let set =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameters) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives the calling thread a larger (negative) or smaller part of a processor that it shares with
/// others, by so many steps of its nice value, which is -20 to 19; each step is a quarter. Others
/// are not kept waiting altogether. Threads started later inherit it.
///
/// # Errors
/// More needs CAP_SYS_NICE.
pub fn change_nice(steps: i32) -> io::Result<()> {
    let nice = rustix::process::getpriority_process(None)?.saturating_add(steps).clamp(-20, 19);
    Ok(rustix::process::setpriority_process(None, nice)?)
}

/// How often the calling thread waited for something, and how often it was stopped although it
/// could have gone on, for others to run. A system call, of some tenths of a microsecond.
#[must_use]
pub fn thread_switches() -> [u64; 2] {
    // SAFETY: all fields are numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` outlives the call. It cannot fail with this argument; zeros stay if it does.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    [usage.ru_nvcsw, usage.ru_nivcsw].map(|count| u64::try_from(count).unwrap_or(0))
}

/// Ties the calling thread to one processor.
///
/// # Errors
/// There is no such processor, or the process may not use it.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Lets the calling thread run on every processor again but these, or on all if there are no
/// others.
///
/// # Errors
/// The process is confined to processors that are off.
pub fn drop_cpu_affinity(but: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu));
    let mut others = set;
    but.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| others.unset(*cpu));
    Ok(sched_setaffinity(None, &others).or_else(|_none| sched_setaffinity(None, &set))?)
}

/// Whether the process runs as root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Raises the limit of open descriptors as far as allowed; returns the limit.
///
/// # Errors
/// None that is known.
pub fn allow_as_many_files_as_possible() -> io::Result<u64> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum.unwrap_or(u64::MAX))
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

/// How much memory the process may lock, bytes; `None`: there is no limit.
pub(crate) fn limit_of_locked_memory() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// Makes the child be killed when the *thread* that starts it ends, however it ends: so start it
/// from a thread that lives as long as the child shall.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let parent = std::process::id().cast_signed();
    // SAFETY: the closure makes two system calls that are safe after fork, and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have ended before the wish was expressed.
            if rustix::process::getppid().map(|pid| pid.as_raw_pid()) != Some(parent) {
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
            assert_eq!(rustix::thread::sched_getcpu(), 0);
            assert!(pin_to_cpu(1_000_000).is_err());
            drop_cpu_affinity(&[]).unwrap();
            set_timer_slack(Nanos(1)).unwrap();
            assert_eq!(rustix::thread::current_timer_slack().unwrap(), 1);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_leaves_a_processor_to_another_if_there_is_a_third() {
        std::thread::spawn(|| {
            drop_cpu_affinity(&[]).unwrap();
            let all = rustix::thread::sched_getaffinity(None).unwrap();
            let there: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect();
            drop_cpu_affinity(&[there[0], usize::MAX]).unwrap();
            let left = rustix::thread::sched_getaffinity(None).unwrap();
            assert_eq!(left.is_set(there[0]), there.len() == 1);
            drop_cpu_affinity(&there).unwrap();
            assert_eq!(rustix::thread::sched_getaffinity(None).unwrap(), all);
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
