#!/bin/bash
# mpirun.sh - trains on several hosts without a scheduler: mpirun starts the ranks over ssh, and the job continues from its
# last checkpoint when it is started again. Every host has the same clone at the same path. Arguments go to train:
#
#   HOSTS=node1:8,node2:8 recipes/mpirun.sh --model qwen2.5-1.5b --data conversations.jsonl --tuning qlora --steps 1000
#
# HOSTS (environment): host:ranks, separated by commas. DEVICE [cuda]. TRAIN: the program [build/cuda/bin/train].
# CHECKPOINTS: a folder that all hosts see [checkpoints]. On a CPU with more ranks than processors, ranks give up the
# processor while they wait for messages, and each computes with one thread.
set -euo pipefail
[ -n "${HOSTS:-}" ] || { echo 'mpirun.sh: HOSTS is not set, such as HOSTS=node1:8,node2:8' >&2 && exit 2; }
device=${DEVICE:-cuda} train=${TRAIN:-build/cuda/bin/train} checkpoints=${CHECKPOINTS:-checkpoints} ranks=0
for host in ${HOSTS//,/ }; do
    [[ $host =~ ^[^:]+:[1-9][0-9]*$ ]] || { echo "mpirun.sh: HOSTS: '$host' is not HOST:RANKS" >&2 && exit 2; }
    ranks=$((ranks + ${host##*:}))
done
environment=()
if [ "$device" = cpu ]; then
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMPI_MCA_mpi_yield_when_idle=1
    environment=(--oversubscribe -x OMP_NUM_THREADS -x OMPI_MCA_mpi_yield_when_idle)
fi
resume=()
[ ! -e "$checkpoints/latest_checkpointed_iteration.txt" ] || resume=(--resume latest)
exec mpirun -np "$ranks" --host "$HOSTS" "${environment[@]}" "$train" --device "$device" --save "$checkpoints" \
    --save-interval 100 --rank-timeout 60 "${resume[@]}" "$@"
