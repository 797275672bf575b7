#!/usr/bin/env bash
# Installs the package in a fresh Debian root, uses it as a new user would, removes and purges it, and looks for what is left. The first
# argument names the package; without it `scripts/deb.sh` makes one. Needs root, debootstrap and a Debian mirror (MIRROR, if not the usual
# one).
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" -eq 0 ] || { echo "package-test: needs root" >&2; exit 3; }

deb=${1:-}
[ -n "$deb" ] || deb=$(scripts/deb.sh | tee /dev/stderr | grep -o "out/[^']*\.deb")
# Mounts and interfaces of ours end with us.
if [ -z "${INSIDE:-}" ]; then
  work=$(mktemp -d)
  trap 'rm -rf --one-file-system "$work"' EXIT
  debootstrap --variant=minbase --include=adduser,systemd bookworm "$work/root" ${MIRROR:-} >"$work/log" 2>&1 ||
    { tail -n 20 "$work/log"; exit 1; }
  INSIDE=$work/root unshare --mount --net --propagation private "$0" "$(realpath "$deb")"
  exit
fi

root=$INSIDE
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
ip link set lo up
ip link add wan0 type veth peer name line0
ip link set wan0 up
ip link set line0 up
ip address add 192.0.2.1/24 dev wan0
cp "$deb" "$root/tmp/evenkeel.deb"
in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
fail() { echo "package-test: $*" >&2; exit 1; }
# Everything but what every installation of a package leaves: lists of packages, logs, backups of the lists of users; and what a start of the machine clears.
files() { (cd "$root" && find . -xdev \( -path ./run -o -path ./var/lib/dpkg -o -path ./var/log -o -path ./var/cache -o -path ./tmp \) -prune -o -print |
  grep -vE '^\./etc/(passwd|shadow|group|gshadow|subuid|subgid)-$' | sort); }
new() { comm -13 <(echo "$before") <(files); }

before=$(files)
in_root dpkg -i /tmp/evenkeel.deb
in_root evenkeel --version
if in_root evenkeel check /etc/evenkeel/router.toml 2>/dev/null; then fail "a configuration is there that nobody made"; fi
in_root evenkeel init --gateway --wan wan0 --down 100Mbit/s --up 20Mbit/s
in_root evenkeel check /etc/evenkeel/router.toml
in_root systemd-analyze verify --man=no /lib/systemd/system/evenkeel.service
for file in usr/share/man/man1/evenkeel.1.gz usr/share/man/man1/evenkeel-ctl-save.1.gz usr/share/doc/evenkeel/examples/router.toml \
  usr/share/bash-completion/completions/evenkeel; do
  [ -s "$root/$file" ] || fail "$file is missing"
done
in_root bash -n /usr/share/bash-completion/completions/evenkeel

# As the unit does: its user, its capabilities, its folders.
in_root install -d -o evenkeel -g evenkeel -m 755 /run/evenkeel /var/lib/evenkeel
capabilities=+net_raw,+net_admin,+bpf,+perfmon,+ipc_lock
# Not by in_root: a signal would be for its shell.
as_service=(chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin
  setpriv --reuid evenkeel --regid evenkeel --clear-groups --inh-caps "-all,$capabilities" --ambient-caps "-all,$capabilities")
"${as_service[@]}" evenkeel run /etc/evenkeel/router.toml >"$root/tmp/log" 2>&1 &
router=$!
trap 'kill "$router" 2>/dev/null || true' EXIT
for _ in $(seq 300); do
  in_root evenkeel ctl show >/dev/null 2>&1 && break
  kill -0 "$router" 2>/dev/null || { cat "$root/tmp/log"; fail "the router has ended"; }
  sleep 0.1
done
in_root evenkeel ctl rate wan 15Mbit/s
in_root evenkeel ctl save
grep -q 15Mbit/s "$root/etc/evenkeel/router.toml" || fail "what runs was not saved"
# Installed once more over the running router, which goes on; then it goes on in a process of what was installed.
in_root dpkg -i /tmp/evenkeel.deb
kill -0 "$router" || { cat "$root/tmp/log"; fail "the running router did not outlive an installation"; }
"${as_service[@]}" evenkeel run --take-over /etc/evenkeel/router.toml >"$root/tmp/log-new" 2>&1 &
new=$!
trap 'kill "$router" "$new" 2>/dev/null || true' EXIT
wait "$router" || { cat "$root/tmp/log" "$root/tmp/log-new"; fail "the router did not go on in another process"; }
in_root evenkeel ctl running | grep -q 15Mbit/s || { cat "$root/tmp/log-new"; fail "what took over is another router"; }
router=$new
kill "$router"
wait "$router" || { cat "$root/tmp/log-new"; fail "the router did not end well"; }
left=$(ls -A "$root/run/evenkeel")
[ -z "$left" ] || fail "the router leaves $left"
rm -rf "$root/run/evenkeel"

# As systemd runs it, in a copy.
scripts/service-test.sh "$root"

in_root dpkg -r evenkeel
left=$(new)
kept=$(printf '%s\n' ./etc/evenkeel ./etc/evenkeel/router.toml ./etc/evenkeel/router.toml~ ./var/lib/evenkeel ./var/lib/evenkeel/esp-ivs)
[ "$left" = "$kept" ] || fail "removed, and there are"$'\n'"$left"
in_root dpkg -P evenkeel
left=$(new)
[ -z "$left" ] || fail "purged, and there are"$'\n'"$left"
! in_root getent passwd evenkeel || fail "its user is left"
echo "package-test: installed, configured, run by hand and by systemd, removed and purged"
