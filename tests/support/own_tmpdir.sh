#!/bin/sh
# SPDX-License-Identifier: MIT
# own_tmpdir.sh COMMAND...: runs the command with a TMPDIR of its own, and removes it afterwards. mpiexec of Open MPI 5 makes a folder there
# that it calls by its process id, and does not start where a killed mpiexec of the same id has left one.
TMPDIR=$(mktemp -d) || exit 1
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
"$@"
