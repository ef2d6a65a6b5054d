# cli.sh - functions shared by the tests of programs. Source it: it enters a new folder $dir, which is removed at the
# end.
tests=$(cd "${BASH_SOURCE[0]%/*}" && pwd) || exit 1 # this folder, also when $0 is a relative path
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
# As in ctest: threads must not spin while they wait, because other tests need the processors.
export OMP_WAIT_POLICY=passive
# This host has a name, so that stored sessions are its own also where the hardware does not identify it.
export PB_MACHINE=tests
# Other tests are other work, which must not mark the processes of a run as throttled.
export PB_DISTURBANCE=ignore
# A plan has the cases that the test names. Tests of control cases, which a run adds by default, unset this.
export PB_CONTROLS=no
# No session is kept, unless a test names a folder for it. The user's own sessions are out of reach.
export XDG_STATE_HOME=$dir/state PB_STATE=
# A text that the user has made with scripts/corpus is not used.
export XDG_DATA_HOME=$dir/share
failures=0

fail() { # fail TEXT...
    printf 'FAILED: %s\n' "$*"
    [[ -s $dir/log ]] && sed 's/^/    | /' "$dir/log"
    failures=$((failures + 1))
}

# check_help PROGRAM: the help of every command has lines of at most 110 characters, and descriptions of options begin in
# column 31, in a line of their own after an argument that reaches it.
check_help() {
    local program=$1 command
    for command in '' $("$program" help | awk '/^$/ { on = 0 } on && /^  [a-z]/ { print $1 } /^commands:/ { on = 1 }'); do
        "$program" help $command >"$dir/help" || fail "help $command: exit $?"
        awk '/^$/ { on = 0 } length > 110 { print; next } /^options:/ { on = 1; next }
            on && length > 29 && substr($0, 30, 1) != " " && NF > ($1 ~ /,$/ ? 3 : 2)' "$dir/help" >"$dir/wide"
        [[ -s $dir/wide ]] && fail "help $command: $(head -n 1 "$dir/wide")"
    done
}

# expect CODE TEXT PROGRAM ARG...: the program must end with this exit code, and its output must contain the text.
expect() {
    local code=$1 text=$2 got
    shift 2
    "$@" >"$dir/log" 2>&1
    got=$?
    [[ $got -eq $code ]] || fail "exit $got, want $code: ${*##*/}"
    [[ -z $text ]] || grep -qF -e "$text" "$dir/log" || fail "'$text' is not in the output of: ${*##*/}"
}

# table PROGRAM...: reads lines "arguments | exit code | text" from standard input and expects each.
table() {
    local args code text words
    while IFS='|' read -r args code text; do
        [[ -z $args || $args == \#* ]] && continue
        read -r -a words <<<"$args"
        expect "${code// /}" "$(sed 's/^ *//; s/ *$//' <<<"$text")" "$@" "${words[@]}"
    done
}

# ten_sessions FILE RUN_ID: repeats the rows as ten sessions.
ten_sessions() {
    awk -v id="$2" 'NR == 1 { print; next } { row[++n] = $0 }
        END { for (k = 10; k < 20; k++) for (i = 1; i <= n; i++) { line = row[i]; sub(id "[^,]*", id k, line); print line } }' \
        "$1" >"$1.ten" && mv "$1.ten" "$1"
}
