#!/usr/bin/env bash
# comm_leave_test.sh - tests that a collective which a rank never calls is ended by pb_comm_abort, and that
# pb_comm_abandon ends the process even if freeing graphs does not return.
#
# usage: comm_leave_test.sh MPIRUN COMM_LEAVE
set -euo pipefail
mpirun=$1 program=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "$1" >&2
    cat "$folder"/* >&2
    exit 1
}

timeout 60 "$program" stuck 2>"$folder/stuck" &
stuck=$!

code=0
timeout 60 "$mpirun" -np 3 "$program" abort >"$folder/abort" 2>&1 || code=$?
[ "$code" = 7 ] || fail "abort: exit code $code, want 7"
[ "$(grep -c '^in all_reduce of 4 f32, number 1$' "$folder/abort")" = 2 ] || fail "not both ranks were in all_reduce"
[ "$(grep -c '^communicator dp was aborted$' "$folder/abort")" = 2 ] || fail "not both ranks say that they were aborted"

code=0
wait "$stuck" || code=$?
[ "$code" = 7 ] || fail "stuck: exit code $code, want 7"
