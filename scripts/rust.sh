# Sourced: finds a Rust that is installed and not on PATH, as under sudo, cron or a runner of CI, and puts it there. RUSTUP_HOME then names the
# toolchains of that same installation, whatever HOME is, and CARGO_HOME its crates if they are ours. Without a Rust, PATH stays as it was.

# What the password database says of a user: without HOME, cargo takes it too.
home_of() { getent passwd "$1" | cut -d : -f 6; }
export HOME="${HOME:-$(home_of "$(id -u)")}"

cargo_works() { "$@" cargo --version >/dev/null 2>&1; }

if ! cargo_works env; then
  for installed in "${CARGO_HOME:-}" "$HOME/.cargo" "$(home_of "$(id -u)")/.cargo" "${SUDO_USER:+$(home_of "$SUDO_USER")/.cargo}" /usr/local/cargo; do
    [ -x "$installed/bin/cargo" ] || continue
    # rustup keeps its toolchains beside: ~/.rustup for ~/.cargo, /usr/local/rustup for /usr/local/cargo.
    toolchains=${installed%cargo}rustup
    [ -d "$toolchains" ] || toolchains=${RUSTUP_HOME:-}
    cargo_works env PATH="$installed/bin:$PATH" RUSTUP_HOME="$toolchains" || continue
    export PATH="$installed/bin:$PATH" RUSTUP_HOME="$toolchains"
    [ ! -O "$installed" ] || export CARGO_HOME="$installed"
    break
  done
fi
unset -f cargo_works home_of
unset installed toolchains
