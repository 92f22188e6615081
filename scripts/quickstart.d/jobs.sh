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
  # The standard output of kformer-generate is for texts alone.
  local copy=copy_output
  [[ $1 != kformer-generate ]] || copy=copy_both
  run_job "$copy" "$output" "${entry[@]}" "$1" "$2"
  result=$(sed -n 's/^results: //p' "$output" | tail -n 1)
  python=$(find_python)
  run_job "${entry[@]}" "$python" -m kformer_results plot "$result"
}

# copy_output FILE COMMAND...: what COMMAND prints goes to FILE as well. A signal to all is for COMMAND alone to
# answer: this function reports its status.
copy_output() {
  trap : INT TERM HUP
  "${@:2}" | (trap '' INT TERM HUP && exec tee "$1")
}

# The same with what COMMAND says of its run on standard error, too.
copy_both() {
  trap : INT TERM HUP
  {
    "${@:2}" 2>&1 >&3 | (trap '' INT TERM HUP && exec tee -a "$1" >&2)
  } 3>&1 | (trap '' INT TERM HUP && exec tee -a "$1")
}

# Ends this script with the job's status unless that is 0.
run_job() {
  supervise "$@"
  await_end
  [[ $child_status == 0 ]] || exit "$child_status"
}

# test_stages full|"" [CTEST ARGS]: builds and runs each test once, or all there are in one stage after the other. What comes
# later takes place even when tests fail.
test_stages() {
  local full=$1 stage stages=(openmp) failed=() reports=() left_out=() first_begins first_took=0
  shift
  [[ -z $full ]] || stages=(openmp asan more serial)
  begin
  prepare_for_tests "$full"
  end_of_setup
  first_begins=$SECONDS
  for stage in "${stages[@]}"; do
    if ! has_time "$stage"; then
      left_out+=("$stage")
      continue
    fi
    begin
    build_tests "$stage" "$full"
    end_of_setup
    run_tests "$stage" "$full" "$@"
    ((first_took)) || first_took=$((SECONDS - first_begins))
  done
  [[ ${#reports[@]} -gt 0 ]] || die "no test ran"
  "${entry[@]}" "$python" "$checkout/scripts/quickstart.d/list_skipped.py" "${reports[@]}" >&2
  [[ ${#left_out[@]} == 0 ]] ||
    say "left out, to end within $KFORMER_TEST_MINUTES minutes (KFORMER_TEST_MINUTES): ${left_out[*]}"
  [[ ${#failed[@]} == 0 ]] || die "tests failed: ${failed[*]}"
}

# has_time STAGE: whether it would end in time. A later stage takes about as many percent of the time of the first on any machine.
has_time() {
  local percent
  [[ -n ${KFORMER_TEST_MINUTES:-} ]] || return 0
  case $1 in
    openmp) return 0 ;;
    asan) percent=12 ;;
    more) percent=25 ;;
    serial) percent=60 ;;
  esac
  ((SECONDS + first_took * percent / 100 < 60 * KFORMER_TEST_MINUTES))
}

# run_tests openmp|asan|more|serial full|"" [CTEST ARGS]: a stage without tests has failed, unless it is one of several and
# the caller chose the tests.
run_tests() {
  local labels=() none=error
  [[ -z $2 || $# == 2 ]] || none=ignore
  case $1-$2 in
    openmp-) labels=(--label-exclude '^full$') ;;
    openmp-full) labels=(--label-exclude '^more$') ;;
    more-*) labels=(--label-regex '^more$') ;;
    serial-*) labels=(--label-regex '^(serial|spaces|install)$') ;;
    asan-*) labels=(--label-regex '^fuzz$') ;;
  esac
  run_ctest "$1" --no-tests=$none "${labels[@]}" "${@:3}"
}

# run_ctest openmp|asan|more|serial ARGS...: adds to `failed` and, if a test ran, to `reports`.
run_ctest() {
  local report=$state/logs/tests-$1.xml
  rm -f "$report" # of an earlier call
  say "tests, $1"
  supervise "${entry[@]}" ctest --test-dir "$(build_folder "$1")" --output-on-failure --output-junit "$report" \
    --test-output-size-passed 100000 --parallel "$(nproc)" "${@:2}"
  await_end
  [[ -z $interrupted ]] || exit "$((child_status ? child_status : 1))"
  [[ $child_status == 0 ]] || failed+=("$1")
  [[ ! -f $report ]] || reports+=("$report")
}
