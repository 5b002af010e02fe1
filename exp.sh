set -u
cd /tmp/w-A; export B=/tmp/w-A/build-x
name=$(lab/lab up ${SPEC:-star:4@200Mbit} | tail -1)
(TUTTI_LOG=info TUTTI_REPLAN=${R:-0} TUTTI_TOPOLOGY=${T:-star:4@200Mbit} lab/lab run $name -- ${PRE:-} build-x/tutti bench -b 2MiB -e 2MiB -n ${N:-100} -w 2 --inplace 0 --check 1 -p ${P:-auto} > /tmp/w-A/exp.out 2>&1) &
sleep ${S:-6}
ns=$(ip netns list | awk '{print $1}' | grep "$name-h1")
if [ "${DIR:-up}" = up ]; then tc -n $ns qdisc change dev eth0 root tbf rate 50mbit burst 128kb limit 1mb; elif [ "$DIR" = down ]; then net=$(ip netns list | awk '{print $1}' | grep "$name+net"); tc -n $net qdisc change dev p1b root tbf rate 50mbit burst 128kb limit 1mb; fi
wait; lab/lab down $name; grep -v "^#" /tmp/w-A/exp.out
