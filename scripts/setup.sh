#!/usr/bin/env bash
# Installs the Debian packages that are missing, and nothing else. Without root it names them.
#   setup.sh demo    what `make run` needs: a linker, and the tools that make the demo's network
#   setup.sh test    that, and what the tests need besides (the default)
#   setup.sh page    what `make page` needs: a browser
#   setup.sh prove   what `make prove` needs: z3
#   setup.sh static  what `make static-test` needs: an emulator
#   setup.sh bench   that, and what only the comparisons with ns-3 and DPDK need
set -euo pipefail

demo=(
  ca-certificates   # cargo fetches crates over TLS
  ethtool           # switches off the offloads of the lab's hosts
  gcc               # the linker for Rust
  iproute2          # namespaces and veth pairs
  iputils-ping
  libc6-dev
)
test=(
  build-essential   # what crates with C code are built with, and bench/ns3
  binutils          # nm, for the purity check of the core
  debootstrap       # a fresh Debian, in which `make package-test` installs the package
  d-itg             # traffic source of the lab, by name
  etcd-server       # members of clusters, in a test
  frr               # BGP beside the router
  iptables          # iptables-legacy: rules that a router must not bypass
  iperf3            # traffic source of the lab, and TCP through the router
  libprotobuf-dev   # with protobuf-compiler: builds the client of etcd
  nftables          # firewall and translation of the gateways that are shaped
  openssl           # certificates for etcd, in a test
  pkg-config
  procps
  protobuf-compiler
  python3           # looks for circles of files, and other checks
  python3-cryptography  # with scapy: decrypts what the router encrypts, in a test
  python3-scapy
  python3-venv      # a place for what the Python package is built and tested with
  python3-z3        # proves bounds of the core
  systemd           # systemd-analyze rates the unit
  tcpdump           # looks for bad checksums
  traceroute
  valgrind          # counts instructions per packet
)
bench=(
  dpdk-dev          # dpdk-testpmd, which forwards on the same veth pairs
  libdpdk-dev       # what bench/rte_sched is built with
  libns3-dev        # what bench/ns3 is built with
)
page=(
  chromium          # opens the live page
  chromium-driver   # tells it what to do
  fonts-dejavu-core
  iperf3            # traffic to look at
  prometheus        # scrapes, and says whether an alert fires
  python3-selenium
)
prove=(
  python3
  python3-z3        # decides the steps of the proofs
)
static=(
  qemu-user         # runs the tests of another architecture
)
case "${1:-test}" in
  demo) packages=("${demo[@]}") ;;
  test) packages=("${demo[@]}" "${test[@]}") ;;
  page) packages=("${demo[@]}" "${page[@]}") ;;
  prove) packages=("${prove[@]}") ;;
  bench) packages=("${demo[@]}" "${test[@]}" "${bench[@]}") ;;
  static) packages=("${static[@]}") ;;
  *) echo "usage: scripts/setup.sh [demo|test|page|prove|bench|static]" >&2; exit 2 ;;
esac

. "$(dirname "$0")/rust.sh"
if ! command -v cargo >/dev/null; then
  echo "Rust is missing: install it with rustup or your distribution (1.91 or newer), then run this again." >&2
  exit 3
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing+=("$package")
done
# Known weaknesses of what is built upon, for `cargo deny check advisories`; not worth waiting for, and a copy of the last 30 days is good enough.
advisories=${CARGO_HOME:-$HOME/.cargo}/advisory-dbs
if [ "${1:-test}" = test ] && command -v cargo-deny >/dev/null && [ -z "$(find "$advisories" -maxdepth 1 -mindepth 1 -type d -mtime -30 2>/dev/null)" ]; then
  had=$(compgen -G "$advisories/*/" || true)
  if ! timeout 30 cargo deny --log-level off fetch db >/dev/null 2>&1; then
    # A half copy would be taken for the whole.
    [ -n "$had" ] || rm -rf "$advisories"
    echo "The database of RustSec could not be fetched: dependencies are checked without it."
  fi
fi

[ ${#missing[@]} -eq 0 ] && exit 0

echo "Missing Debian packages: ${missing[*]}"
if [ "$(id -u)" -eq 0 ]; then
  as_root=()
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root=(sudo -n)
else
  # Building needs only a linker; what the rest is needed for says so itself when it is missed.
  echo "Not root: install them with   sudo apt-get install ${missing[*]}" >&2
  command -v cc >/dev/null && exit 0
  echo "Without a C linker (gcc, libc6-dev) nothing can be built." >&2
  exit 3
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
# A daemon that a package brings is for the tests to start, in namespaces of their own; the machine's own stays as it is.
policy=/usr/sbin/policy-rc.d
if [[ " ${missing[*]} " == *" frr "* ]] && [ ! -e "$policy" ]; then
  trap '"${as_root[@]}" rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod +x "$policy"
fi
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
