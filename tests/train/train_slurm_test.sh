#!/bin/bash
# train_slurm_test.sh TRAIN_STRUCK RECIPES - Slurm itself on two hosts, which are network and UTS namespaces of this machine,
# joined by a virtual cable: four ranks that srun starts by PMIx give the log and the weights of one rank; a rank on the
# other host that is killed or stopped is named with its host, srun ends with the code of its signal, and nothing is left
# running; a job of RECIPES/slurm.sbatch that lost a rank continues from its checkpoint when it is submitted again, and ends
# with the weights of one that lost none. Exit code 77, which is a skip, without Slurm, or without the privilege to make
# namespaces.
train=$1 recipes=$2
. "${0%/*}/../cli.sh"
. "${0%/*}/hosts.sh"
export TMPDIR=$dir PATH=$PATH:/usr/sbin
for program in munged slurmctld slurmd srun sbatch; do
    command -v $program >/dev/null || { echo "skipped: no $program (Debian: slurmctld slurmd slurm-client munge)" && exit 77; }
done
finish() {
    inside | xargs -r kill -9
    [ ! -e "$dir/munge.pid" ] || kill "$(cat "$dir/munge.pid")"
    no_hosts
    rm -rf "$dir"
}
trap finish EXIT
two_hosts slurm 10.213.78

# ---- Slurm's daemons: munged for both hosts, the controller on host-a, a slurmd on each ------------------------------
mkdir state tmp-host-a tmp-host-b spool-host-a spool-host-b
cat >slurm.conf <<END
ClusterName=plumb
SlurmctldHost=host-a($near)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$dir/munge.sock
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
StateSaveLocation=$dir/state
SlurmctldPidFile=$dir/slurmctld.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdPidFile=$dir/%n.pid
SlurmdLogFile=$dir/%n.log
SlurmdSpoolDir=$dir/spool-%n
TmpFS=$dir/tmp-%n
ReturnToService=2
NodeName=host-a NodeAddr=$near CPUs=$(getconf _NPROCESSORS_ONLN) State=UNKNOWN
NodeName=host-b NodeAddr=$far CPUs=$(getconf _NPROCESSORS_ONLN) State=UNKNOWN
PartitionName=all Nodes=host-a,host-b Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$dir/slurm.conf SLURM_OVERCOMMIT=1
(umask 077 && head -c 1024 /dev/urandom >munge.key)
chmod 755 "$dir"
expect 0 '' munged --force --key-file="$dir/munge.key" --socket="$dir/munge.sock" --pid-file="$dir/munge.pid" \
    --log-file="$dir/munge.log" --seed-file="$dir/munge.seed"
expect 0 '' on "$a" host-a slurmctld
expect 0 '' on "$a" host-a slurmd -N host-a
expect 0 '' on "$b" host-b slurmd -N host-b
for ((i = 0; i < 100; i++)); do
    [[ $(on "$a" host-a sinfo --noheader --states=idle --format=%D) == 2 ]] && break
    sleep 0.1
done
[[ $i -lt 100 ]] || { fail "no two idle nodes: $(tail -n 3 slurmctld.log)" && exit 1; }

# ---- srun ------------------------------------------------------------------------------------------------------------
export PB_LAUNCH_HOST=$near OMP_NUM_THREADS=1 OMPI_MCA_mpi_yield_when_idle=1 PB_STRIKE=${PB_STRIKE:-}
args=(--model tiny --batch 1 --seq 48 --deterministic --quiet --steps 5 --mode graph)
ranks=(on "$a" host-a srun --mpi=pmix --nodes 2 --ntasks-per-node 2 --kill-on-bad-exit=0)
results() { cut -d, -f1-5,11,12 "$1"; } # the columns that do not depend on the machine
none_left() {
    local i
    for ((i = 0; i < 100; i++)); do
        [[ -n $(inside | xargs -r ps -o comm= -p | grep -v '^slurm') ]] || return
        sleep 0.1
    done
    fail "$1: left running: $(inside | xargs -r ps -o args= -p | grep -v slurm)"
}
expect 0 '' "$train" "${args[@]}" --accumulate 4 --log one.csv --export one
expect 0 '' "${ranks[@]}" "$train" "${args[@]}" --log srun.csv --export srun
cmp <(results one.csv) <(results srun.csv) || fail 'srun: two hosts give another log'
diff -r one srun >/dev/null || fail 'srun: two hosts give other weights'
none_left 'ended well'

for how in ${HOW:-kill stop}; do
    rm -rf ck
    PB_STRIKE="3 3 replay $how" expect 137 '' "${ranks[@]}" "$train" "${args[@]}" --rank-timeout 2 --save ck --save-interval 1
    [[ $(grep -c '^rank 0: rank 3 on host-b (cpu), step 3, phase replay' log) -eq 1 ]] || fail "$how: rank 3 of host-b is not named"
    [[ $(cat ck/latest_checkpointed_iteration.txt) -ge 2 ]] || fail "$how: the last checkpoint is gone"
    none_left "$how"
done

# ---- the recipe, which asks for GPUs: this cluster has none, so they are taken out of it and of train's options ------
grep -v '^#SBATCH --gpus' "$recipes/slurm.sbatch" >job.sbatch
cat >on_cpu <<END
#!/bin/bash
[[ "\$1 \$2" == '--device cuda' ]] || exit 2
exec "$train" "\${@:3}"
END
chmod +x on_cpu
# submit STRIKE: runs the job to its end, and sets code to its exit code and its output into the file log.
submit() {
    TRAIN=$dir/on_cpu CHECKPOINTS=$dir/saved PB_STRIKE=$1 on "$a" host-a sbatch --wait --output="$dir/log" --chdir="$dir" \
        --ntasks-per-node=2 --cpus-per-task=1 job.sbatch "${args[@]}" --save-interval 1 --export "$dir/job" >submitted 2>&1
    code=$?
}
submit '3 3 replay kill'
[[ $code -eq 137 ]] || fail "the job that lost a rank ended with $code, not 137: $(cat submitted log)"
grep -q '^rank 0: rank 3 on host-b (cpu)' log || fail "the job does not name the rank that it lost: $(cat log)"
submit ''
[[ $code -eq 0 ]] || fail "the job that continues ended with $code: $(cat submitted log)"
diff -r one job >/dev/null || fail 'the job that continued has other weights'
none_left 'jobs'

exit $((failures > 0))
