//! What a router cannot do although its user may: write files anywhere but where it keeps its own,
//! and ask the kernel for anything that a running router never asks for.
//!
//! Both are a second wall. Where the kernel lacks one, the router says so and runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter_all_threads};

/// The folders in which a router makes files. From now on the calling thread, and those that it
/// starts, can make and change files only there, can read everywhere, and can start no program.
///
/// # Errors
/// What the kernel lacks or refuses, in words: the router may go on.
pub(crate) fn files(folders: &[PathBuf]) -> Result<(), String> {
    let failed = |error: &dyn std::error::Error| format!("files are not confined: {error}");
    // Linux 6.2. What that has and an older kernel lacks is left open there.
    let abi = ABI::V3;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .and_then(Ruleset::create)
        .map_err(|error| failed(&error))?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let own = AccessFs::from_all(abi) & !AccessFs::Execute;
    let root = [(PathBuf::from("/"), read)];
    for (folder, access) in root.into_iter().chain(folders.iter().cloned().map(|f| (f, own))) {
        // One that cannot be made cannot be written to either: whoever wants to is told.
        let _ = std::fs::create_dir_all(&folder);
        let Ok(opened) = PathFd::new(&folder) else { continue };
        rules = rules.add_rule(PathBeneath::new(opened, access)).map_err(|error| failed(&error))?;
    }
    let status = rules.restrict_self().map_err(|error| failed(&error))?;
    match status.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => {
            Err("files are not confined: the kernel has no landlock".to_owned())
        }
    }
}

/// The folder that a file is made in.
pub(crate) fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// From now on no thread of the process can make other system calls than those of a running router.
///
/// # Errors
/// What the kernel lacks or refuses, in words: the router may go on.
pub(crate) fn calls() -> Result<(), String> {
    let failed = |error: &dyn std::error::Error| format!("system calls are not confined: {error}");
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| failed(&error))?;
    let rules: BTreeMap<i64, _> = CALLS.iter().map(|call| (*call, Vec::new())).collect();
    // A C library that is newer than this list falls back to what it knew before, if what it tries
    // does not exist.
    let refusal = SeccompAction::Errno(libc::ENOSYS as u32);
    let program: BpfProgram = SeccompFilter::new(rules, refusal, SeccompAction::Allow, arch)
        .and_then(TryInto::try_into)
        .map_err(|error| failed(&error))?;
    apply_filter_all_threads(&program).map_err(|error| failed(&error))
}

/// Recorded by strace from routers on packet sockets and on AF_XDP, with one and with two workers,
/// through reloads, new workers, interfaces that went and came, captures, commands and signals; and
/// what the C library and the client of etcd use instead on other machines.
#[rustfmt::skip]
const CALLS: &[i64] = &[
    // Sockets, programs and what tells that something is ready.
    libc::SYS_socket, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept4, libc::SYS_connect,
    libc::SYS_shutdown, libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_getsockopt,
    libc::SYS_setsockopt, libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_sendmsg,
    libc::SYS_recvmsg, libc::SYS_sendmmsg, libc::SYS_recvmmsg, libc::SYS_socketpair,
    libc::SYS_bpf, libc::SYS_ioctl, libc::SYS_epoll_create1, libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2, libc::SYS_ppoll, libc::SYS_eventfd2,
    libc::SYS_timerfd_create, libc::SYS_timerfd_settime, libc::SYS_timerfd_gettime,
    libc::SYS_signalfd4, libc::SYS_pipe2,
    // Files.
    libc::SYS_openat, libc::SYS_close, libc::SYS_read, libc::SYS_write, libc::SYS_readv,
    libc::SYS_writev, libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_lseek, libc::SYS_fcntl,
    libc::SYS_dup, libc::SYS_dup3, libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx,
    libc::SYS_fstatfs, libc::SYS_statfs, libc::SYS_faccessat, libc::SYS_faccessat2,
    libc::SYS_readlinkat, libc::SYS_getdents64, libc::SYS_mkdirat, libc::SYS_unlinkat,
    libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_fchmod, libc::SYS_fchmodat,
    libc::SYS_ftruncate, libc::SYS_fallocate, libc::SYS_fsync, libc::SYS_fdatasync,
    libc::SYS_flock, libc::SYS_getcwd, libc::SYS_copy_file_range, libc::SYS_sendfile,
    // Memory.
    libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect, libc::SYS_madvise,
    libc::SYS_brk, libc::SYS_mlock, libc::SYS_mlock2, libc::SYS_munlock, libc::SYS_membarrier,
    libc::SYS_memfd_create,
    // Threads, clocks, and what a process knows of itself.
    libc::SYS_clone, libc::SYS_clone3, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_futex,
    libc::SYS_set_robust_list, libc::SYS_get_robust_list, libc::SYS_rseq, libc::SYS_gettid,
    libc::SYS_getpid, libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid,
    libc::SYS_set_tid_address, libc::SYS_sched_yield, libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity, libc::SYS_sched_setscheduler, libc::SYS_sched_getscheduler,
    libc::SYS_sched_getparam, libc::SYS_getpriority, libc::SYS_setpriority, libc::SYS_getrusage,
    libc::SYS_prlimit64, libc::SYS_prctl, libc::SYS_capget, libc::SYS_capset, libc::SYS_setns,
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep, libc::SYS_gettimeofday, libc::SYS_getrandom, libc::SYS_uname,
    libc::SYS_sysinfo, libc::SYS_getcpu, libc::SYS_restart_syscall,
    // Signals, its own included: a panic in a panic ends by one.
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait, libc::SYS_sigaltstack, libc::SYS_tgkill,
    // What younger architectures do not have.
    #[cfg(target_arch = "x86_64")] libc::SYS_poll,
    #[cfg(target_arch = "x86_64")] libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")] libc::SYS_access,
    #[cfg(target_arch = "x86_64")] libc::SYS_stat,
    #[cfg(target_arch = "x86_64")] libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")] libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")] libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")] libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")] libc::SYS_rename,
    #[cfg(target_arch = "x86_64")] libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")] libc::SYS_arch_prctl,
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::process::Command;

    use super::*;

    #[test]
    fn f11_files_are_made_only_in_the_own_folders_and_no_program_is_started() {
        let folder = tempfile::tempdir().unwrap();
        let (own, other) = (folder.path().join("own"), folder.path().join("other"));
        fs::create_dir(&other).unwrap();
        fs::write(other.join("here"), "before").unwrap();
        let before = Command::new("true").status();
        assert!(before.is_ok_and(|status| status.success()));
        // The wall is of this thread and of those that it starts.
        std::thread::spawn(move || {
            if let Err(why) = files(std::slice::from_ref(&own)) {
                println!("SKIPPED: {why}");
                return;
            }
            let denied = |error: std::io::Error| error.kind() == ErrorKind::PermissionDenied;
            fs::write(own.join("file"), "text").unwrap();
            fs::rename(own.join("file"), own.join("moved")).unwrap();
            fs::remove_file(own.join("moved")).unwrap();
            assert_eq!(fs::read_to_string(other.join("here")).unwrap(), "before");
            assert!(fs::write(other.join("here"), "after").is_err_and(denied));
            assert!(fs::write(other.join("there"), "").is_err_and(denied));
            assert!(fs::remove_file(other.join("here")).is_err_and(denied));
            assert!(Command::new("true").status().is_err_and(denied));
        })
        .join()
        .unwrap();
    }
}
