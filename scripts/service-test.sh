#!/usr/bin/env bash
# The service as systemd runs it: systemd is pid 1 of namespaces of its own, over a root in which the package is installed and configured, which stays as it is.
# The unit is started, told to read its file again, upgraded, killed, made to hang and stopped. Needs root; the network is that of the caller.
#
#   scripts/service-test.sh ROOT
set -euo pipefail
root=$1
fail() { echo "service-test: $*" >&2; exit 1; }

if [ -z "${BOOT:-}" ]; then
  work=$(mktemp -d)
  pid1=
  clean() {
    [ -z "$pid1" ] || kill -KILL "$pid1" 2>/dev/null || true
    wait 2>/dev/null || true
    # The kernel takes the processes away after their first has gone.
    for _ in $(seq 100); do
      [ ! -d "$work/groups/$group" ] || find "$work/groups/$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
      [ -d "$work/groups/$group" ] || break
      sleep 0.1
    done
    umount "$work/groups" 2>/dev/null || true
    umount "$work" 2>/dev/null || true
    rmdir "$work"
  }
  trap clean EXIT
  mount -t tmpfs tmpfs "$work"
  group=evenkeel-service-test-$$
  mkdir "$work/groups" "$work/upper" "$work/workdir" "$work/root"
  # Services are groups of processes; the machine's own are not ours to change, but one below them.
  mount -t cgroup2 cgroup2 "$work/groups" || fail "the kernel has no second version of control groups"
  mkdir "$work/groups/$group"
  export BOOT=$work
  # Its own group first: that is the root of what it sees.
  sh -c 'echo $$ >"$0/cgroup.procs"; exec unshare --pid --mount --uts --ipc --cgroup --fork --kill-child "$@"' "$work/groups/$group" "$0" "$root" \
    >"$work/log" 2>&1 &
  pid1=$!
else
  mount --make-rprivate /
  mount -t overlay -o "lowerdir=$root,upperdir=$BOOT/upper,workdir=$BOOT/workdir" overlay "$BOOT/root"
  cd "$BOOT/root"
  mount -t proc proc proc
  mount -t sysfs sysfs sys
  mount -t cgroup2 cgroup2 sys/fs/cgroup
  mount -t tmpfs -o mode=755 tmpfs run
  mount -t tmpfs tmpfs tmp
  mount -t tmpfs -o mode=755 tmpfs dev
  for device in null zero full random urandom tty; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
  done
  # PrivateDevices copies them.
  mkdir dev/pts
  mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
  ln -s pts/ptmx dev/ptmx
  # A root of its own, not one that was changed: services get roots below it.
  pivot_root . .
  umount -l .
  exec env -i container=evenkeel-test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=multi-user.target
fi

# unshare waits for pid 1, its only child.
inner=
for _ in $(seq 100); do
  inner=$(cat "/proc/$pid1/task/$pid1/children" 2>/dev/null | tr -d ' ') && [ -n "$inner" ] && break
  sleep 0.1
done
[ -n "$inner" ] || { cat "$work/log"; fail "pid 1 has not come up"; }
in_root() { nsenter --target "$inner" --mount --pid --uts --ipc --cgroup --root --wdns=/ env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
until_true() { # what, command
  local what=$1
  shift
  for _ in $(seq 300); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.1
  done
  tail -n 40 "$work/log" >&2
  in_root systemctl status --no-pager evenkeel >&2 || true
  in_root journalctl --no-pager -n 40 >&2 || true
  fail "$what"
}
is() { [ "$(in_root systemctl show -P "$1" evenkeel)" = "$2" ]; }
running() { is ActiveState active && in_root evenkeel ctl show; }
restarted() { # how often
  is NRestarts "$1" && running
}
# The process as it stands in the namespace.
process() { in_root systemctl show -P MainPID evenkeel; }

until_true "systemd does not answer" in_root systemctl list-units
in_root systemctl start evenkeel || fail "the unit does not start: $(in_root journalctl --no-pager -u evenkeel)"
until_true "it does not run" running
status=$(in_root cat "/proc/$(process)/status")
grep -q "^NoNewPrivs:.1" <<<"$status" || fail "it can gain privileges: $status"
grep -q "^Seccomp:.2" <<<"$status" || fail "it may call everything: $status"
capabilities=$(sed -n 's/^CapEff:.//p' <<<"$status")
# NET_ADMIN, NET_RAW, IPC_LOCK, PERFMON, BPF.
[ $((0x$capabilities & ~0xc000007000)) -eq 0 ] || fail "it has other capabilities than the unit gives: $capabilities"
user=$(in_root stat -c %U "/proc/$(process)")
[ "$user" = evenkeel ] || fail "it runs as $user"

# Its file is read again.
file=/etc/evenkeel/router.toml
in_root sed -i 's/^rate = ".*"/rate = "7Mbit\/s"/' "$file"
in_root systemctl reload evenkeel || fail "its file is not read again"
[[ $(in_root evenkeel ctl show) == *" 7Mbit/s"* ]] || fail "the new file does not hold: $(in_root evenkeel ctl show)"
in_root sed -i 's/^rate = ".*"/rate = "fast"/' "$file"
! in_root systemctl reload evenkeel 2>/dev/null || fail "a wrong file is taken"
[[ $(in_root evenkeel ctl show) == *" 7Mbit/s"* ]] || fail "a refused file has changed something"
in_root sed -i 's/^rate = ".*"/rate = "8Mbit\/s"/' "$file"

# Another program in its file, as an upgrade of the package puts it there: the service goes on as that, without having ended.
old=$(process)
in_root sh -c 'cp /usr/bin/evenkeel /usr/bin/evenkeel.new && echo >>/usr/bin/evenkeel.new && mv /usr/bin/evenkeel.new /usr/bin/evenkeel'
in_root systemctl reload evenkeel || fail "it does not go on as another program"
renewed() { [ "$(process)" != "$old" ] && running && is NRestarts 0; }
until_true "the process is still the old one" renewed
[ "$(in_root readlink "/proc/$(process)/exe")" = /usr/bin/evenkeel ] || fail "it is not the program in the file"
[ ! -e "/proc/$inner/root/proc/$old" ] || fail "the old process has not ended"

# Killed, it comes back; its heart is not fed, it is killed and comes back.
in_root sh -c "kill -KILL $(process)"
until_true "killed, it is not started anew" restarted 1
in_root sh -c "kill -STOP $(process)"
until_true "it hangs, and is not started anew" restarted 2
is Result success || fail "it runs, and is not well"

in_root systemctl stop evenkeel
is ActiveState inactive || fail "it does not stop"
is Result success || fail "it stops with $(in_root systemctl show -P Result evenkeel)"
[ "$(in_root ls /run/evenkeel 2>/dev/null | wc -l)" -eq 0 ] || fail "it leaves $(in_root ls /run/evenkeel)"
# Read whole: whoever stops reading in the middle breaks the pipe.
[[ $(in_root journalctl --no-pager -o cat -u evenkeel) == *"Watchdog timeout"* ]] || fail "no watchdog in the journal"
echo "service-test: started, reloaded, upgraded, killed, hung and stopped by systemd as pid 1"
