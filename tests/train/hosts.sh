# hosts.sh - two hosts on this machine, for tests of jobs on several hosts. Source it after cli.sh.

# two_hosts NAME NETWORK: makes two network namespaces, $a and $b, joined by a virtual cable, with the addresses $near and
# $far of NETWORK, such as 10.213.77. Exit code 77, which is a skip, without the privilege. The caller's trap calls no_hosts.
two_hosts() {
    local host
    a=$1-$$-a b=$1-$$-b near=$2.1 far=$2.2
    unshare --net --uts true 2>log && ip netns add "$a" 2>>log && ip netns add "$b" 2>>log || {
        echo "skipped, because this user cannot make namespaces: $(tail -n 1 log)"
        exit 77
    }
    ip link add v0 netns "$a" type veth peer name v0 netns "$b"
    for host in "$a $near" "$b $far"; do
        ip -n "${host% *}" addr add "${host#* }/24" dev v0
        ip -n "${host% *}" link set v0 up
        ip -n "${host% *}" link set lo up
    done
}

# Removes the namespaces, those of a two_hosts that failed half-way too.
no_hosts() {
    local host
    for host in "$a" "$b"; do [ -z "$host" ] || [ ! -e "/run/netns/$host" ] || ip netns del "$host"; done
}

# on NAMESPACE NAME COMMAND...: runs the command on the host of this name. Not by `ip netns exec`, which mounts another /sys,
# without the control groups that Slurm needs.
on() { nsenter --net="/run/netns/$1" unshare --uts sh -c 'hostname "$0" && exec "$@"' "${@:2}"; }

inside() { ip netns pids "$a" && ip netns pids "$b"; } 2>/dev/null # the processes on both hosts
