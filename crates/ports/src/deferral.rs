//! Interrupts of an interface that wait for whoever polls it.
//!
//! A socket that prefers busy polling (`SO_PREFER_BUSY_POLL`) has the kernel do the driver's work
//! in the call of the thread that asks for frames, on that thread's CPU, and not in an interrupt.
//! That holds only if interrupts leave the thread time to ask. Two numbers say how much, for each
//! NAPI instance, which is as much as a receive queue:
//!
//! - `gro-flush-timeout`: so long after the last poll the kernel looks itself;
//! - `defer-hard-irqs`: so often it looks in vain before interrupts are on again.
//!
//! (A third, `irq-suspend-timeout`, is for threads that poll by epoll; a worker that is awake does
//! not.) They are set by netlink, for each instance, or before Linux 6.13 by sysfs, for the whole
//! interface. What was there is restored by a stop, and after `kill -9` by the next start, which
//! finds it written down; until then a lone frame may wait twice the time for its interrupt.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use evenkeel_core::Nanos;
use netlink_sys::protocols::NETLINK_GENERIC;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::error::PortError;
use crate::interface::Control;
use crate::netlink::{Message, NetlinkSocket, attributes, generic};
use crate::note::Note;

/// Of the family `netdev`.
const NAPI_GET: u8 = 11;
const NAPI_SET: u8 = 14;
const IFINDEX: u16 = 1;
const ID: u16 = 2;
const DEFER_HARD_IRQS: u16 = 5;
const GRO_FLUSH_TIMEOUT: u16 = 6;

/// Looks in vain before interrupts are on again.
const LOOKS: u32 = 2;
/// Stands for all instances where they have no settings of their own.
const ALL: u32 = 0;
/// Files of an interface in sysfs.
const DEFER: &str = "napi_defer_hard_irqs";
const FLUSH: &str = "gro_flush_timeout";

/// The numbers of an instance; the time in nanoseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Settings {
    defer_hard_irqs: u32,
    gro_flush_timeout: u64,
}

impl Settings {
    /// A line of the note.
    fn written(&self) -> String {
        let Self { defer_hard_irqs, gro_flush_timeout } = self;
        format!("{defer_hard_irqs} {gro_flush_timeout}")
    }

    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        Some(Self {
            defer_hard_irqs: words.next()?.parse().ok()?,
            gro_flush_timeout: words.next()?.parse().ok()?,
        })
    }
}

/// Interrupts of an interface wait; dropping it restores what was there.
#[derive(Debug)]
pub struct Deferral {
    interface: String,
    ifindex: u32,
    control: Control,
    netlink: NetlinkSocket,
    wanted: Settings,
    /// By instance, in the order in which the kernel has them: numbers change, the order stays.
    before: Vec<Settings>,
    note: Note,
}

impl Deferral {
    /// Has the interrupts of `interface`, in the network namespace of the calling thread, wait for
    /// as long as somebody polls it at least every `wait`. `known`: the sockets that are to poll it
    /// [know](crate::Port::knows_napi) which instances to ask. What was there is kept in the
    /// directory `runtime`, made if missing, for the next start.
    ///
    /// # Errors
    /// [`PortError::NoNapi`]: since Linux 6.13, where sockets know that from the start, these do
    /// not, and nobody would ask.
    /// There is no such interface, the process lacks CAP_NET_ADMIN, the kernel cannot do it (for
    /// one before Linux 6.13: that needs `/sys` of the namespace, or CAP_SYS_ADMIN), or `runtime`
    /// cannot be written.
    pub fn set(
        interface: &str,
        known: bool,
        wait: Nanos,
        runtime: &Path,
    ) -> Result<Self, PortError> {
        let control = Control::open()?;
        let ifindex = control.interface(interface)?.index;
        let asking = |error| failed("asking for", interface, error);
        let mut netlink = NetlinkSocket::open_to(NETLINK_GENERIC).map_err(asking)?;
        if !known && instances(&mut netlink, ifindex).map_err(asking)?.is_some() {
            return Err(PortError::NoNapi(interface.to_owned()));
        }
        let note = Note::of("interrupts", (interface, ifindex), runtime)?;
        let before =
            note.recall().iter().flatten().filter_map(|line| Settings::read(line)).collect();
        let wanted = Settings { defer_hard_irqs: LOOKS, gro_flush_timeout: wait.0 };
        let interface = interface.to_owned();
        let mut this = Self { interface, ifindex, control, netlink, wanted, before, note };
        this.renew()?;
        Ok(this)
    }

    /// Sets it again: an interface that was down may have other instances.
    ///
    /// # Errors
    /// As [`Deferral::set`].
    pub fn renew(&mut self) -> Result<(), PortError> {
        let now = self.all("asking for")?;
        self.before.extend(now.iter().skip(self.before.len()).map(|(_, settings)| *settings));
        self.note.remember(self.before.iter().map(|settings| settings.written()))?;
        for (id, settings) in now {
            if settings != self.wanted {
                self.put(id, self.wanted)
                    .map_err(|error| failed("deferring", &self.interface, error))?;
            }
        }
        Ok(())
    }

    /// Restores what was there. Dropping does the same and does not tell of a failure.
    fn undo(&mut self) -> Result<(), PortError> {
        // An interface of the same name that came later has its own.
        let ours = |found: Result<u32, PortError>| found.is_ok_and(|index| index == self.ifindex);
        if ours(self.control.interface(&self.interface).map(|found| found.index)) {
            let now = self.all("asking for")?;
            for ((id, _), before) in now.into_iter().zip(std::mem::take(&mut self.before)) {
                self.put(id, before)
                    .map_err(|error| failed("restoring", &self.interface, error))?;
            }
        }
        self.note.forget();
        Ok(())
    }

    fn all(&mut self, what: &str) -> Result<Vec<(u32, Settings)>, PortError> {
        let found = instances(&mut self.netlink, self.ifindex).and_then(|found| match found {
            Some(found) => Ok(found),
            None => {
                let settings = Sysfs::of(&self.interface, self.ifindex)?.settings()?;
                Ok(vec![(ALL, settings)])
            }
        });
        found.map_err(|error| failed(what, &self.interface, error))
    }

    fn put(&mut self, id: u32, settings: Settings) -> io::Result<()> {
        if id == ALL {
            return Sysfs::of(&self.interface, self.ifindex)?.put(settings);
        }
        let family = self.netlink.family("netdev")?;
        let message = Message::new(family, 0, &generic(NAPI_SET))
            .attribute(ID, &id.to_ne_bytes())
            .attribute(DEFER_HARD_IRQS, &settings.defer_hard_irqs.to_ne_bytes())
            .attribute(GRO_FLUSH_TIMEOUT, &settings.gro_flush_timeout.to_ne_bytes());
        self.netlink.request(message).map(drop)
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        let _ = self.undo();
    }
}

/// The instances of an interface that is up; `None`: they have no settings of their own here.
fn instances(
    netlink: &mut NetlinkSocket,
    ifindex: u32,
) -> io::Result<Option<Vec<(u32, Settings)>>> {
    let absent =
        |error: &io::Error| matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP));
    let asked = netlink.family("netdev").and_then(|family| {
        let message = Message::new(family, libc::NLM_F_DUMP, &generic(NAPI_GET));
        netlink.request(message.attribute(IFINDEX, &ifindex.to_ne_bytes()))
    });
    match asked {
        Ok(bodies) => Ok(bodies.iter().map(|body| instance(body)).collect()),
        Err(error) if absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `None`: without settings (before Linux 6.13).
fn instance(body: &[u8]) -> Option<(u32, Settings)> {
    let all = || attributes(body.get(4..).unwrap_or_default());
    let number = |wanted| {
        let (_, value) = all().find(|(kind, _)| *kind == wanted)?;
        match value.len() {
            4 => value.first_chunk().map(|four| u32::from_ne_bytes(*four).into()),
            _ => value.first_chunk().map(|eight| u64::from_ne_bytes(*eight)),
        }
    };
    let settings = Settings {
        defer_hard_irqs: number(DEFER_HARD_IRQS)? as u32,
        gro_flush_timeout: number(GRO_FLUSH_TIMEOUT)?,
    };
    Some((number(ID)? as u32, settings))
}

/// The folder of an interface in the sysfs of its namespace.
struct Sysfs {
    folder: PathBuf,
    /// What it is found under, if `/sys` is that of another namespace.
    _mount: Option<OwnedFd>,
}

impl Sysfs {
    fn of(interface: &str, ifindex: u32) -> io::Result<Self> {
        let known = Self { folder: Path::new("/sys/class/net").join(interface), _mount: None };
        if known.number("ifindex").is_ok_and(|known| ifindex == known) {
            return Ok(known);
        }
        let sysfs = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&sysfs)?;
        let mount = fsmount(&sysfs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        let folder = format!("/proc/self/fd/{}/class/net/{interface}", mount.as_raw_fd());
        Ok(Self { folder: folder.into(), _mount: Some(mount) })
    }

    fn number<T: FromStr>(&self, file: &str) -> io::Result<T> {
        let text = fs::read_to_string(self.folder.join(file))?;
        text.trim().parse().map_err(|_no_number| io::ErrorKind::InvalidData.into())
    }

    fn settings(&self) -> io::Result<Settings> {
        Ok(Settings {
            defer_hard_irqs: self.number(DEFER)?,
            gro_flush_timeout: self.number(FLUSH)?,
        })
    }

    fn put(&self, settings: Settings) -> io::Result<()> {
        fs::write(self.folder.join(DEFER), settings.defer_hard_irqs.to_string())?;
        fs::write(self.folder.join(FLUSH), settings.gro_flush_timeout.to_string())
    }
}

fn failed(what: &str, interface: &str, error: io::Error) -> PortError {
    PortError::from_io(format!("{what} the interrupts of interface {interface}"), error)
}

#[cfg(test)]
mod tests {
    use evenkeel_netns::testing::{TestNet, available};

    use super::*;
    use crate::sys::in_netns;

    const WAIT: Nanos = Nanos::from_micros(50);
    const OURS: Settings = Settings { defer_hard_irqs: 2, gro_flush_timeout: 50_000 };
    const THEIRS: Settings = Settings { defer_hard_irqs: 7, gro_flush_timeout: 90_000 };

    /// Runs `work` beside a veth pair of two queues.
    fn beside<T: Send>(test: &str, work: impl FnOnce(&TestNet, &Path) -> T + Send) {
        if !available(test) {
            return;
        }
        let net = TestNet::new(&["a", "b"]);
        net.wire_of_queues(("a", "va"), ("b", "vb"), 2);
        // Instances of a veth begin to exist with it.
        net.output("b", "ethtool -K vb gro on");
        let runtime = tempfile::tempdir().unwrap();
        in_netns(&net.name("b"), || work(&net, runtime.path())).unwrap();
        assert_eq!(fs::read_dir(runtime.path()).unwrap().count(), 0, "nothing is left to undo");
    }

    fn index() -> u32 {
        Control::open().unwrap().interface("vb").unwrap().index
    }

    /// By instance, if the kernel has that.
    fn of_instances() -> Option<Vec<Settings>> {
        let mut netlink = NetlinkSocket::open_to(NETLINK_GENERIC).unwrap();
        let all = instances(&mut netlink, index()).unwrap()?;
        Some(all.into_iter().map(|(_, settings)| settings).collect())
    }

    fn by_sysfs() -> Sysfs {
        Sysfs::of("vb", index()).unwrap()
    }

    fn now() -> Vec<Settings> {
        of_instances().unwrap_or_else(|| vec![by_sysfs().settings().unwrap()])
    }

    /// What there is when the operator has chosen for one of the two.
    fn chosen_for_one(runtime: &Path) -> Vec<Settings> {
        let mut first = Deferral::set("vb", true, WAIT, runtime).unwrap();
        first.before[0] = THEIRS;
        drop(first);
        let chosen = now();
        assert_eq!(chosen[0], THEIRS);
        chosen
    }

    /// As long as they wait.
    fn waiting() -> Vec<Settings> {
        vec![OURS; of_instances().map_or(1, |known| known.len())]
    }

    #[test]
    fn interrupts_wait_until_the_end_and_then_are_as_before() {
        beside("interrupts that wait", |_, runtime| {
            let before = chosen_for_one(runtime);
            let ours = Deferral::set("vb", true, WAIT, runtime).unwrap();
            assert_eq!(now(), waiting());
            drop(ours);
            assert_eq!(now(), before);
        });
    }

    #[test]
    fn what_a_killed_process_left_is_not_taken_for_what_was_there() {
        beside("interrupts after a kill", |_, runtime| {
            let before = now();
            std::mem::forget(Deferral::set("vb", true, WAIT, runtime).unwrap());
            assert_eq!(now(), waiting());
            drop(Deferral::set("vb", true, WAIT, runtime).unwrap());
            assert_eq!(now(), before);
        });
    }

    #[test]
    fn an_interface_that_was_down_gets_them_again() {
        beside("interrupts of an interface that was down", |net, runtime| {
            let before = chosen_for_one(runtime);
            let mut ours = Deferral::set("vb", true, WAIT, runtime).unwrap();
            net.ip("b", "link set vb down");
            ours.renew().unwrap();
            net.ip("b", "link set vb up");
            // The instances of a veth are others then.
            assert!(of_instances().is_none_or(|now| now != waiting()));
            ours.renew().unwrap();
            assert_eq!(now(), waiting());
            drop(ours);
            assert_eq!(now(), before);
        });
    }

    #[test]
    fn an_interface_that_takes_the_place_of_another_is_left_alone() {
        beside("interrupts of another interface", |net, runtime| {
            let ours = Deferral::set("vb", true, WAIT, runtime).unwrap();
            net.ip("b", "link del vb");
            net.wire(("a", "va"), ("b", "vb"));
            net.output("b", "ethtool -K vb gro on");
            let other = Deferral::set("vb", true, Nanos::from_micros(70), runtime).unwrap();
            let before = now();
            drop(ours);
            assert_eq!(now(), before);
            drop(other);
        });
        let error = Deferral::set("vb", true, WAIT, Path::new("/nowhere")).unwrap_err();
        assert!(matches!(error, PortError::NoInterface(_)), "{error}");
    }

    #[test]
    fn a_kernel_without_settings_of_instances_is_told_by_sysfs() {
        beside("interrupts by sysfs", |_, _| {
            let before = by_sysfs().settings().unwrap();
            by_sysfs().put(OURS).unwrap();
            assert_eq!(by_sysfs().settings().unwrap(), OURS);
            assert!(now().iter().all(|one| *one == OURS), "they count for all instances");
            by_sysfs().put(before).unwrap();
        });
    }
}
