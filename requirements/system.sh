#!/usr/bin/env bash
# system.sh run|test: the programs that must be on the machine, to build and use Stripewise or also to run its tests.
# As root it installs with apt-get what is missing. Otherwise it prints the one line that does, and fails.
set -euo pipefail
python=${PYTHON:-python3}
packages=()
need() { command -v "$1" > /dev/null || packages+=("$2"); }
# Debian keeps some programs out of the search path, and a library has no program.
need_file() { compgen -G "$1" > /dev/null || packages+=("$2"); }

need cc gcc
need fusermount3 fuse3
need make make
need pkg-config pkg-config
# From Debian 13 on; before, and elsewhere, https://rustup.rs has it.
need cargo rustup
need python3 python3
# Debian's Python has venv, but not what venv needs.
if command -v "$python" > /dev/null; then
    "$python" -c 'import ensurepip' 2> /dev/null || packages+=(python3-venv)
else
    packages+=(python3-venv)
fi

case ${1:-} in
run) ;;
test)
    need chromium-headless-shell chromium-headless-shell
    need fakeroot fakeroot
    need faketime faketime
    need fio fio
    need getfattr attr
    need git git
    need psql postgresql-client
    command -v initdb > /dev/null || need_file '/usr/lib/postgresql/*/bin/initdb' postgresql
    need rsync rsync
    need sqlite3 sqlite3
    need strace strace
    need stress-ng stress-ng
    need tar tar
    need_file '/usr/lib/*/libjemalloc.so.2' libjemalloc2
    need_file '/usr/sbin/mkfs.xfs' xfsprogs
    ;;
*)
    echo 'usage: requirements/system.sh run|test' >&2
    exit 2
    ;;
esac

if [ "${#packages[@]}" -gt 0 ]; then
    if [ "$EUID" -ne 0 ]; then
        echo "missing; install it with: sudo apt-get install --no-install-recommends ${packages[*]}" >&2
        exit 1
    fi
    echo "installing ${packages[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" > /dev/null
    # The package rustup comes without a compiler.
    [[ " ${packages[*]} " != *' rustup '* ]] || rustup default stable
fi
