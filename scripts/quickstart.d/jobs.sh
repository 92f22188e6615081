# SPDX-License-Identifier: MIT
# What runs once everything is built.

# Each kind of deck has a driver, named by the first word of the kind.
driver_of() {
  local kind
  [[ -f $1 && -r $1 ]] || die "cannot read the deck $1"
  kind=$(sed -nE 's/^ *kind *= *"([a-z_]+)".*/\1/p' "$1" | head -n 1)
  [[ -n $kind ]] || die "$1 has no line kind = \"...\", which chooses the driver"
  printf 'kformer-%s\n' "${kind%%_*}"
}

# run_deck DRIVER DECK: the table, the result file, and its plots beside it.
run_deck() {
  local output result
  output=$(mktemp)
  # shellcheck disable=SC2064
  trap "rm -f '$output'" EXIT
  say "running $1 $2"
  run_job copy_output "$output" "${entry[@]}" "$1" "$2"
  result=$(sed -n 's/^results: //p' "$output" | tail -n 1)
  run_job "${entry[@]}" "$python" -m kformer_results plot "$result"
}

# copy_output FILE COMMAND...: what COMMAND prints goes to FILE as well. A signal to all is for COMMAND alone to
# answer: this function reports its status.
copy_output() {
  trap : INT TERM HUP
  "${@:2}" | (trap '' INT TERM HUP && exec tee "$1")
}

# Ends this script with the job's status unless that is 0.
run_job() {
  supervise "$@"
  await_end
  [[ $child_status == 0 ]] || exit "$child_status"
}

# Both runs take place even when the first fails.
run_tests() {
  local variant failed=()
  for variant in openmp serial; do
    say "tests, $variant"
    supervise "${entry[@]}" ctest --test-dir "$(build_folder "$variant")" --output-on-failure \
      --parallel "$(nproc)" "$@"
    await_end
    [[ -z $interrupted ]] || exit "$((child_status ? child_status : 1))"
    [[ $child_status == 0 ]] || failed+=("$variant")
  done
  [[ ${#failed[@]} == 0 ]] || die "tests failed: ${failed[*]}"
}
