#!/usr/bin/env bash
# Cargo's runner of test binaries in `make test` and `make test-all`. One that hangs is ended and has failed.
# Those of tests/long.txt run only where STRIPEWISE_LONG_TESTS is set.
# usage: bounded.sh BINARY ARGUMENT...
set -uo pipefail
seconds=${STRIPEWISE_TEST_SECONDS:-1800}
binary=$(basename "$1")
file=crates/$(basename "$CARGO_MANIFEST_DIR")/tests/${binary%-*}.rs
if [ -z "${STRIPEWISE_LONG_TESTS:-}" ] && grep -qxF "$file" "$(dirname "$0")/long.txt"; then
    echo "$file: left to 'make test-all'"
    exit 0
fi
# A cargo that a test starts has nothing to do with this list.
for variable in "${!CARGO_TARGET_@}"; do [[ $variable != *_RUNNER ]] || unset "$variable"; done
# In the foreground, so that an interrupt from the terminal reaches the test, too.
timeout --foreground --kill-after=30 "$seconds" "$@"
status=$?
# 124: it ended when it was told to; 137: it was killed.
if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
    echo "$file ($binary): ended after at most $seconds s; the tests above without a result hang" >&2
fi
exit "$status"
