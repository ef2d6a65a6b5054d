#!/bin/bash
# spills_test.sh SOURCE - scripts/spills: a kernel may spill what is allowed for its architecture, and no more; what the
# compiler says otherwise, and its exit code, are passed on.
source=$1
. "${0%/*}/../cli.sh"
spills() { "$source/scripts/spills" "$@"; }

# A compiler that prints what ptxas -v prints: of the kernel a for sm_80, and of a and b for sm_89, where b spills.
cat >nvcc <<'NVCC'
#!/bin/bash
of() { # of KERNEL ARCH BYTES
    echo "ptxas info    : Compiling entry function '$1' for '$2'" >&2
    echo "ptxas info    : Function properties for $1" >&2
    echo "    0 bytes stack frame, $3 bytes spill stores, 56 bytes spill loads" >&2
    echo 'ptxas info    : Used 40 registers, used 0 barriers' >&2
}
echo 'ptxas info    : 0 bytes gmem' >&2
of a sm_80 "${EARLY:-0}"
echo "ptxas warning : Registers are spilled to local memory in function 'b', 8 bytes spill stores, 56 bytes spill loads" >&2
echo 'a.cu(3): warning #177-D: function "f" was declared but never referenced' >&2
of a sm_89 0
of b sm_89 8
echo "$*" >&2
exit "${CODE:-0}"
NVCC
printf '#!/bin/bash\nexit "${CODE:-0}"\n' >silent
chmod +x nvcc silent

expect 0 'a.cu(3): warning #177-D' spills 8:sm_89 ./nvcc -c a.cu
[[ $(cat log) == *'-c a.cu' ]] || fail 'the compiler gets other arguments'
! grep -q 'ptxas\|bytes' log || fail 'what only this script asked for is printed'
expect 0 '' spills 8:sm_89,sm_120 ./nvcc
expect 0 '' spills 8:sm_120,sm_89 ./nvcc
expect 0 '' spills 12:sm_89 ./nvcc
expect 1 'spills: 8 bytes of spill stores for sm_89, but kernels/spills.allow permits 7' spills 7:sm_89 ./nvcc
expect 1 'spills: 8 bytes of spill stores for sm_89, but kernels/spills.allow permits 0' spills 8:sm_80 ./nvcc
expect 1 'for sm_89, but kernels/spills.allow permits 0' spills 8:sm_89a,sm_8 ./nvcc
EARLY=4 expect 1 'spills: 4 bytes of spill stores for sm_80, but kernels/spills.allow permits 0' spills 8:sm_89 ./nvcc
CODE=3 expect 3 '#177-D' spills 8:sm_89 ./nvcc
expect 1 'spills: the compiler did not say how much the kernels spill' spills 8:sm_89 ./silent
CODE=2 expect 2 '' spills 8:sm_89 ./silent

[[ $failures -eq 0 ]] && echo 'all passed'
exit $((failures > 0))
