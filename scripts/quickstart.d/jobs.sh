# SPDX-License-Identifier: MIT
# What runs once everything is built.

# find_deck DECK: prints it when it can be read.
find_deck() {
  [[ -f $1 && -r $1 ]] || die "cannot read the deck $1"
  printf '%s\n' "$1"
}

# Each kind of deck has a driver, named by the first word of the kind.
driver_of() {
  local kind
  kind=$(sed -nE 's/^ *kind *= *"([a-z_]+)".*/\1/p' "$1" | head -n 1)
  [[ -n $kind ]] || die "$1 has no line kind = \"...\", which chooses the driver"
  printf 'kformer-%s\n' "${kind%%_*}"
}

# run_deck DECK: the table, the result file, and its plots beside it.
run_deck() {
  local driver marker result
  driver=$(driver_of "$1")
  marker=$(mktemp)
  say "running $driver $1"
  run_job "$driver" "$1"
  result=$("${entry[@]}" "$python" "$checkout/scripts/quickstart.d/result_file.py" "$1" "$marker")
  rm -f "$marker"
  run_job "$python" -m kformer_results plot "$result"
}

# Ends this script with the job's status unless that is 0.
run_job() {
  supervise "${entry[@]}" "$@"
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
