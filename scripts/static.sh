#!/usr/bin/env bash
# Builds the command as one file that needs no library, for amd64 and arm64: out/evenkeel-VERSION-linux-ARCH. Arguments name architectures; without
# one, both. `scripts/static.sh test arm64` runs the tests of core, net, config and cluster of that architecture instead, under qemu-user where it
# is not the machine's own. Everything is linked by Rust's own linker, with the C library that comes with the target: no cross compiler is needed.
# Not tried here: a router on arm64, whose sockets and programs in the kernel qemu-user does not have.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/rust.sh

what=build
[ "${1:-}" != test ] || { what=test; shift; }
[ "$#" -gt 0 ] || set -- amd64 arm64
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
for architecture in "$@"; do
  case $architecture in
    amd64) target=x86_64-unknown-linux-musl machine=x86_64 ;;
    arm64) target=aarch64-unknown-linux-musl machine=aarch64 ;;
    *) echo "static: no architecture $architecture; there are amd64 and arm64" >&2; exit 2 ;;
  esac
  rustup target list --installed | grep -qx "$target" || rustup target add "$target"
  name=$(tr a-z- A-Z_ <<<"$target")
  export "CARGO_TARGET_${name}_LINKER=rust-lld"
  export "CARGO_TARGET_${name}_RUSTFLAGS=-C link-self-contained=yes -C target-feature=+crt-static"
  if [ "$what" = test ]; then
    if [ "$(uname -m)" != "$machine" ]; then
      command -v "qemu-$machine" >/dev/null || { echo "static: no qemu-$machine: scripts/setup.sh static" >&2; exit 3; }
      export "CARGO_TARGET_${name}_RUNNER=qemu-$machine"
    fi
    cargo test --locked --quiet --target "$target" -p evenkeel-core -p evenkeel-net -p evenkeel-config -p evenkeel-cluster
    continue
  fi
  # What debuggers read makes up two thirds of it.
  CARGO_PROFILE_RELEASE_STRIP=debuginfo cargo build --release --locked --quiet -p evenkeel --target "$target"
  mkdir -p out
  file=out/evenkeel-$version-linux-$architecture
  install -m755 "target/$target/release/evenkeel" "$file"
  # A program that asks for an interpreter or a library is not static.
  if readelf -ld "$file" | grep -E 'INTERP|NEEDED'; then
    echo "static: $file needs a library" >&2
    exit 1
  fi
  [ "$(uname -m)" != "$machine" ] || "$file" --version
  echo "static: $file"
done
