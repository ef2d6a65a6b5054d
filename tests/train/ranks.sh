# ranks.sh - functions shared by the tests of training on several ranks. Source it after cli.sh.

# Writes conversations.jsonl: 40 conversations of different lengths.
conversations() {
    local i
    for i in $(seq 40); do
        printf '{"messages": [{"role": "user", "content": "What is %d?"}, {"role": "assistant", "content": "%s"}]}\n' \
            "$i" "$(seq -s ' ' "$i" $((i + 1 + i % 9)))"
    done >conversations.jsonl
}

# around_ranks PROGRAM: makes --ranks run PROGRAM (the last part of its path) in each rank through the shell script that
# standard input holds. "$@" of the script is the command line of the rank.
around_ranks() {
    cat >rank
    cat >starter <<END
#!/bin/bash
own=()
while [[ \$1 != */$1 ]]; do own+=("\$1"); shift; done
exec mpirun "\${own[@]}" "$dir/rank" "\$@"
END
    chmod +x starter rank
    export PB_MPIRUN=$dir/starter
}
