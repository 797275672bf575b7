#!/usr/bin/env bash
# Makes the Debian package of this machine's architecture, out/evenkeel_VERSION_ARCH.deb. EVENKEEL names a command that is built already;
# without it the one of `make build` is made.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${EVENKEEL:-}" ]; then
  cargo build --release --locked --quiet -p evenkeel
  EVENKEEL=target/release/evenkeel
fi
EVENKEEL=$(realpath "$EVENKEEL")
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
# The same tree gives the same package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
docs=$root/usr/share/doc/evenkeel
umask 022

install -Dm755 "$EVENKEEL" "$root/usr/bin/evenkeel"
# Names and lines of functions stay: a backtrace of a user's must be readable.
strip --strip-unneeded --keep-section=.debug_line "$root/usr/bin/evenkeel"
install -Dm644 packaging/evenkeel.service "$root/lib/systemd/system/evenkeel.service"
install -dm755 "$root/etc/evenkeel" "$docs/examples"
install -m644 docs/examples/*.toml "$docs/examples/"
install -m644 README.md packaging/debian/copyright "$docs/"
install -m644 docs/*.md "$docs/"
gzip -9nc CHANGELOG.md >"$docs/changelog.gz"
chmod 644 "$docs/changelog.gz"

"$EVENKEEL" man "$root/usr/share/man/man1" >/dev/null
find "$root/usr/share/man" -type f -exec gzip -9n {} +
complete() { # shell, file
  install -dm755 "$(dirname "$root/$2")"
  "$EVENKEEL" completions "$1" >"$root/$2"
}
complete bash usr/share/bash-completion/completions/evenkeel
complete zsh usr/share/zsh/vendor-completions/_evenkeel
complete fish usr/share/fish/vendor_completions.d/evenkeel.fish

# Which libraries the command needs, and from which version on.
mkdir "$work/debian"
printf 'Source: evenkeel\n\nPackage: evenkeel\nArchitecture: any\n' >"$work/debian/control"
libraries=$(cd "$work" && dpkg-shlibdeps --ignore-missing-info -O -e root/usr/bin/evenkeel 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
[ -n "$libraries" ] || { echo "deb: dpkg-shlibdeps does not say what $EVENKEEL needs" >&2; exit 1; }

install -dm755 "$root/DEBIAN"
for script in postinst prerm postrm; do install -m755 "packaging/debian/$script" "$root/DEBIAN/$script"; done
size=$(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f 1)
sed -e "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/; s/@LIBRARIES@/$libraries/" \
  packaging/debian/control >"$root/DEBIAN/control"
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"

mkdir -p out
dpkg-deb --root-owner-group -Zxz --build "$root" "out/evenkeel_${version}_$architecture.deb"
