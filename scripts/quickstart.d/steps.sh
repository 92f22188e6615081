# SPDX-License-Identifier: MIT
# How steps of the set-up are done: progress, logs, stamps of what is done, and the lock.
# A step is never called inside a condition: bash would then ignore errors within it.

say() { printf 'quickstart: %s\n' "$*" >&2; }

die() {
  say "$*"
  exit 1
}

# set_up COMMAND...: runs COMMAND, which does steps, under the lock. Where no step is left to do, another call may
# hold the lock.
set_up() {
  if (nothing_may_be_done=yes && "$@") 2>/dev/null; then
    "$@"
  else
    begin
    "$@"
    end_of_setup
  fi
}

# What is about to be done counts as undone for a call without the lock.
needs_lock() { [[ -z ${nothing_may_be_done:-} ]] || exit 1; }

# Makes the state folder and holds its lock. The commands of a step inherit the lock, so that what
# outlives a killed call finishes before the next call goes on from there.
begin() {
  mkdir -p "$state"/{logs,stamps}
  exec {lock}<>"$state/lock"
  if ! flock --nonblock "$lock"; then
    say "another call works in $state (process $(cat "$state/lock")); waiting for what it started"
    flock "$lock"
  fi
  printf '%s\n' $$ >"$state/lock"
}

# The job that follows may take long and shares the state folder with others.
end_of_setup() { exec {lock}>&-; }

# step TITLE NAME COMMAND...: runs COMMAND with its output in logs/NAME.log.
step() {
  local title=$1 log=$state/logs/$2.log started=$SECONDS last_report=$SECONDS
  shift 2
  needs_lock
  supervise "$@" >"$log" 2>&1
  while is_running; do
    show_progress
  done
  await_end
  [[ ! -t 2 ]] || printf '\r\033[K' >&2
  if [[ -n $interrupted ]]; then
    say "$title: stopped by SIG$interrupted; the next call goes on from here"
    exit "$((child_status ? child_status : 1))"
  fi
  if [[ $child_status != 0 ]]; then
    say "$title: failed after $((SECONDS - started)) s; the end of $log:"
    tail -n 25 "$log" >&2
    exit 1
  fi
  say "$title: done in $((SECONDS - started)) s"
}

# On a terminal one line that is written over; elsewhere a line every half minute.
show_progress() {
  local elapsed=$((SECONDS - started)) pause=0.5
  [[ $elapsed -ge 2 ]] || pause=0.05
  if [[ -t 2 ]]; then
    local width=$((${COLUMNS:-80} - ${#title} - 30))
    [[ $width -ge 0 ]] || width=0
    printf '\r\033[Kquickstart: %s: %d s  %.*s' "$title" "$elapsed" "$width" "$(last_line "$log")" >&2
  elif ((SECONDS - last_report >= 30)); then
    last_report=$SECONDS
    say "$title: $elapsed s  $(last_line "$log")"
  fi
  sleep "$pause" || true # Ctrl-C ends the sleep too
}

last_line() { tail -c 400 "$1" | tr '\r' '\n' | tail -n 1 | cut -c1-100; }

# once TITLE NAME KEY COMMAND...: a step that is skipped when it was done before with the same KEY.
once() {
  local title=$1 name=$2 key=$3
  shift 3
  is_done "$name" "$key" || step "$title" "$name" do_and_stamp "$name" "$key" "$@"
}

# forget_without FOLDER NAME: the step NAME is undone where the FOLDER that it makes is gone.
forget_without() {
  [[ ! -e $1 ]] || return 0
  needs_lock
  rm -f "$state/stamps/$2"
}

is_done() { [[ -f $state/stamps/$1 && $(<"$state/stamps/$1") == "$2" ]]; }

do_and_stamp() {
  local name=$1 key=$2
  shift 2
  rm -f "$state/stamps/$name"
  "$@"
  printf '%s\n' "$key" >"$state/stamps/$name.new"
  mv "$state/stamps/$name.new" "$state/stamps/$name"
}

# Key of a step: a hash of everything it depends on.
key_of() { printf '%s\n' "$@" | sha256sum | cut -c1-16; }

# supervise COMMAND...: starts COMMAND in its own process group and sends it the signals that this script
# gets. await_end waits for it; then child_status is its status and interrupted the last such signal. (Not `supervise || ...`: see the head of this file.)
supervise() {
  local signal
  set -m
  "$@" </dev/null &
  child=$!
  set +m
  interrupted=""
  for signal in INT TERM HUP; do
    # shellcheck disable=SC2064
    trap "interrupted=$signal; kill -$signal -- -$child 2>/dev/null || true" $signal
  done
}

is_running() { kill -0 "$child" 2>/dev/null; }

await_end() {
  while is_running; do
    wait "$child" || true
  done
  child_status=0
  wait "$child" || child_status=$?
  trap - INT TERM HUP
}
