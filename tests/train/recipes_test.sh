#!/bin/bash
# recipes_test.sh TRAIN SOURCE - the recipes that train on several hosts: mpirun.sh with two ranks of this host, also when
# it is started again, and what slurm.sbatch asks of srun. Slurm itself is not needed.
export TRAIN=$1
recipes=$2/recipes
. "${0%/*}/../cli.sh"
tiny=(--model tiny --seq 16 --batch 1 --save-interval 2)

# ---- mpirun.sh -------------------------------------------------------------------------------------------------------
export HOSTS=localhost:2 DEVICE=cpu
expect 0 'step      2/2' "$recipes/mpirun.sh" "${tiny[@]}" --steps 2
[[ $(cat checkpoints/latest_checkpointed_iteration.txt) == 2 ]] || fail 'no checkpoint of step 2'
expect 0 'step      4/4' "$recipes/mpirun.sh" "${tiny[@]}" --steps 4
grep -q 'step      [12]/4' log && fail 'started again, it does not continue from its checkpoint'
HOSTS='' expect 2 'HOSTS is not set' "$recipes/mpirun.sh"
HOSTS=a:2,b expect 2 "'b' is not HOST:RANKS" "$recipes/mpirun.sh"
mkdir path && printf '#!/bin/bash\nprintf "%%s\\n" "$@"\n' | tee path/mpirun >path/srun && chmod +x path/*
PATH=$dir/path:$PATH HOSTS=a:8,b:4 DEVICE=cuda expect 0 '' "$recipes/mpirun.sh" --steps 4
[[ $(head -n 4 log | tr '\n' ' ') == '-np 12 --host a:8,b:4 ' ]] || fail "mpirun: $(head -n 4 log | tr '\n' ' ')"

# ---- slurm.sbatch ----------------------------------------------------------------------------------------------------
PATH=$dir/path:$PATH SLURM_CPUS_PER_TASK=3 expect 0 '' "$recipes/slurm.sbatch" --steps 4
[[ $(tr '\n' ' ' <log) == "--mpi=pmix --kill-on-bad-exit=0 $TRAIN --device cuda --save checkpoints "*'--resume latest --steps 4 ' ]] ||
    fail "srun: $(tr '\n' ' ' <log)"
rm -r checkpoints
PATH=$dir/path:$PATH expect 0 '' "$recipes/slurm.sbatch"
grep -q resume log && fail 'it continues from a checkpoint that does not exist'
tasks=$(sed -n 's/^#SBATCH --ntasks-per-node=//p' "$recipes/slurm.sbatch")
[[ $tasks -gt 0 && $tasks == "$(sed -n 's/^#SBATCH --gpus-per-node=//p' "$recipes/slurm.sbatch")" ]] || fail 'not a rank for each GPU'
exit $((failures > 0))
