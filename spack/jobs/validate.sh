#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Validates an installation, as the validation test suite of E4S does. After `module load kformer`:
#   $(dirname $(command -v kformer-layer))/../share/kformer/jobs/validate.sh
# Every driver says its version, a small deck of each kind runs, and its results agree with the reference.
set -uo pipefail

program=$(command -v kformer-layer) || {
  echo "kformer-layer is not on the PATH; load the module of Kformer" >&2
  exit 1
}
bin=$(cd "$(dirname "$program")" && pwd) || exit 1
inputs=$(cd "$bin/../share/kformer/inputs/smoke" && pwd) || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

passed=0 failed=0
check() { # NAME COMMAND...
  if "${@:2}" >"$1.log" 2>&1; then
    passed=$((passed + 1))
    echo "ok      $1"
  else
    failed=$((failed + 1))
    echo "FAILED  $1"
    tail -n 20 "$1.log"
  fi
}

for driver in layer attention generate memory train quantize data scaling; do
  check "version-$driver" "$bin/kformer-$driver" --version
done
for deck in layer attention generate train scaling; do
  check "run-$deck" "$bin/kformer-$deck" "$inputs/$deck.toml" -o "$deck.h5"
done
check run-memory "$bin/kformer-memory" llama-3.2-1b

echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
