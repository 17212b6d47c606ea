#!/bin/sh
# Makes this machine a viber of the Board at @BOARD@:
# downloads daemon-agent from the Board, checks it, installs it for this user, and joins with the given token.
#
#   curl -fsSL @BOARD@/install.sh | sh -s -- TOKEN [--name NAME] [--labels k=v,…] [--space DIR]…
#
# VIBER_BIN  folder to install into (default ~/.local/bin)
set -eu

BOARD='@BOARD@'
ARCH='@ARCH@'

say() { printf '%s\n' "$*"; }
fail() { printf 'install: %s\n' "$*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

# fetch URL FILE
fetch() {
  if has curl; then
    code=$(curl -sSL -o "$2" -w '%{http_code}' "$1") || fail "cannot reach $1"
  elif has wget; then
    code=$(wget -S -O "$2" "$1" 2>&1 | sed -n 's/^ *HTTP\/[0-9.]* \([0-9][0-9]*\).*/\1/p' | tail -n 1)
    [ -n "$code" ] || fail "cannot reach $1"
  else
    fail "needs curl or wget, and this machine has neither"
  fi
  if [ "$code" != 200 ]; then
    [ ! -s "$2" ] || sed 's/^/  /' "$2" >&2
    fail "$1 answered $code"
  fi
}

checksum() {
  if has sha256sum; then sha256sum "$1" | cut -d ' ' -f 1
  elif has shasum; then shasum -a 256 "$1" | cut -d ' ' -f 1
  elif has openssl; then openssl dgst -sha256 -r "$1" | cut -d ' ' -f 1
  else fail "needs sha256sum, shasum or openssl to check the download"
  fi
}

main() {
  token=${1:-}
  case $token in
    vbj_*) shift ;;
    *) printf 'usage: curl -fsSL %s/install.sh | sh -s -- TOKEN (a join token: vbj_…)\n' "$BOARD" >&2; exit 2 ;;
  esac

  system=$(uname -s)
  machine=$(uname -m)
  case $machine in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; esac
  [ "$system" = Linux ] || fail "this Board serves daemon-agent for Linux, this machine runs $system; build it from source there: cargo install --path daemon-agent"
  [ -z "$ARCH" ] || [ "$machine" = "$ARCH" ] || fail "this Board serves daemon-agent for $ARCH, this machine is $machine; build it from source there: cargo install --path daemon-agent"
  [ -n "${HOME:-}" ] || [ -n "${VIBER_BIN:-}" ] || fail "neither HOME nor VIBER_BIN is set: say where to install with VIBER_BIN=/some/folder"

  bin=${VIBER_BIN:-$HOME/.local/bin}
  mkdir -p "$bin" || fail "cannot make $bin"
  new=$(mktemp "$bin/.daemon-agent.XXXXXX") || fail "cannot write into $bin"
  sum=$new.sha256
  trap 'rm -f "$new" "$sum"' EXIT
  trap 'exit 1' HUP INT TERM

  say "Downloading daemon-agent from $BOARD"
  fetch "$BOARD/download/daemon-agent.sha256" "$sum"
  fetch "$BOARD/download/daemon-agent" "$new"
  want=$(cut -d ' ' -f 1 "$sum")
  got=$(checksum "$new")
  [ "$want" = "$got" ] || fail "the download is damaged (SHA-256 $got, expected $want); try again"

  chmod 755 "$new"
  "$new" --version >/dev/null 2>&1 || fail "the downloaded daemon-agent does not run on this machine ($system $machine)"
  mv -f "$new" "$bin/daemon-agent"
  say "Installed $bin/daemon-agent"
  case ":${PATH:-}:" in *":$bin:"*) ;; *) say "($bin is not in your PATH)" ;; esac

  if has systemctl && systemctl --user show-environment >/dev/null 2>&1; then
    "$bin/daemon-agent" join "$BOARD" "$token" --service "$@"
  else
    "$bin/daemon-agent" join "$BOARD" "$token" "$@"
    say "This machine has no service manager for users, so nothing starts daemon-agent by itself. Start it with:"
    say "  $bin/daemon-agent run"
  fi
}

main "$@"
