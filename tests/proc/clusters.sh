#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# clusters.sh - the examples for Slurm and Kubernetes, as far as they can be tried
# without either: an srun of a few lines starts the ranks of the batch script; each
# pod of the job is a process here, with its variables, its command and its files.
. "$(dirname "$0")/lib.sh"
examples=$here/../../examples
PATH=$(dirname "$tutti"):$PATH

# Every variable of theirs is a setting.
names=$(grep -oh 'TUTTI_[A-Z_]*' "$examples"/slurm/* "$examples"/kubernetes/* | sort -u)
known=$(env -i "$tutti" settings --md | sed -n 's/^| `\(TUTTI_[A-Z_]*\)`.*/\1/p' | sort)
is "the examples name variables" "$([ "$(wc -l <<<"$names")" -ge 5 ] && echo yes)" yes
is "all of them are settings" "$(comm -23 <(echo "$names") <(echo "$known"))" ""

# ---- Slurm: what srun gives to the tasks of a step on two hosts, both this one.

mkdir "$tmp/bin" "$tmp/submitted"
cat >"$tmp/bin/srun" <<'S'
#!/usr/bin/env bash
# The ranks of $SLURM_NTASKS, as step 0; the first that fails decides the status.
[ "$1" = --kill-on-bad-exit=1 ] || exit 99
shift
stat -c 'secret %a' "$TUTTI_SECRET_FILE" >"$SLURM_SUBMIT_DIR/seen"
status=0 pids=()
for ((i = 0; i < SLURM_NTASKS; i++)); do
    SLURM_PROCID=$i SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=$SLURM_NNODES \
        SLURM_STEP_NODELIST=$SLURM_JOB_NODELIST "$@" &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    wait "$pid" || status=$?
done
exit $status
S
chmod +x "$tmp/bin/srun"

# batch PROGRAM [ARGS...]: the script as slurmd starts it.
batch() {
    run env PATH="$tmp/bin:$PATH" SLURM_JOB_ID=$$ SLURM_NTASKS=8 SLURM_NNODES=2 \
        SLURM_JOB_NODELIST='localhost' SLURM_SUBMIT_DIR="$tmp/submitted" \
        bash "$examples/slurm/train.sbatch" "$@"
}

is "train.sbatch asks for as many tasks as it says" \
    "$(sed -n 's/^#SBATCH --\(nodes\|ntasks-per-node\)=//p' "$examples/slurm/train.sbatch" | tr '\n' ' ')" "2 4 "
batch "$tutti" bench -b 1KiB -e 1KiB -n 5 --json
ends "train.sbatch runs a job" 0
is "of eight ranks" "$(grep -o '"n_ranks":[0-9]*' "$tmp/out" | sort -u)" '"n_ranks":8'
is "with a secret that only its user may read" "$(cat "$tmp/submitted/seen")" "secret 600"
is "which is gone at the end" "$(ls -A "$tmp/submitted")" "seen"
batch false
ends "its status is that of its ranks" 1
is "and the secret is gone then, too" "$(ls -A "$tmp/submitted")" "seen"

# ---- Kubernetes

job=$examples/kubernetes/train.yaml
if ! python3 -c 'import yaml' 2>/dev/null; then
    skip "train.yaml" "no python3-yaml here"
    finish
fi
# For each rank a script: the variables and the command of its pod. What Kubernetes
# would mount and name is put in place: files below $tmp, the address of rank 0.
cat >"$tmp/pods.py" <<'P'
import os, shlex, sys, yaml
path, out, port = sys.argv[1:]
docs = list(yaml.safe_load_all(open(path)))
service = next(d for d in docs if d["kind"] == "Service")
job = next(d for d in docs if d["kind"] == "Job")
spec, pod = job["spec"], job["spec"]["template"]["spec"]
(rank,) = pod["containers"]
env = {e["name"]: e for e in rank["env"]}
name = job["metadata"]["name"]
assert spec["completionMode"] == "Indexed" and pod["restartPolicy"] == "Never"
assert spec["completions"] == spec["parallelism"] == int(env["TUTTI_SIZE"]["value"])
# The first pod's name is that of the job, its index, and the service's name.
assert service["spec"]["selector"] == {"job-name": name}
assert service["spec"]["clusterIP"] == "None"  # a word, not YAML's null
assert pod["subdomain"] == service["metadata"]["name"]
host, its_port = env["TUTTI_ADDR"]["value"].split(":")
assert host == f'{name}-0.{pod["subdomain"]}', host
assert int(its_port) == service["spec"]["ports"][0]["port"]
field = env["TUTTI_RANK"]["valueFrom"]["fieldRef"]["fieldPath"]
assert field == "metadata.annotations['batch.kubernetes.io/job-completion-index']", field
mounts = {m["name"]: m["mountPath"] for m in rank["volumeMounts"]}
assert set(mounts) == {v["name"] for v in pod["volumes"]}
for i in range(spec["completions"]):
    given = {n: e.get("value", str(i)) for n, e in env.items()}
    given["TUTTI_ADDR"] = f"127.0.0.1:{port}"
    words = rank["command"] + rank["args"] + ["-b", "1KiB", "-e", "1KiB", "-n", "5", "--json"]
    script = " ".join(["exec env"] + [shlex.quote(f"{n}={v}") for n, v in given.items()] +
                      [shlex.quote(w) for w in words])
    for volume, at in mounts.items():
        script = script.replace(at, f"{out}/{volume}" + (f"-{i}" if volume == "own" else ""))
    os.makedirs(f"{out}/own-{i}")
    with open(f"{out}/pod-{i}", "w") as f:
        f.write(script + "\n")
print(spec["completions"])
P
mkdir "$tmp/secret"
"$tutti" secret "$tmp/secret/job.secret"
chmod 440 "$tmp/secret/job.secret" # as mounted
run python3 "$tmp/pods.py" "$job" "$tmp" "$(some_port)"
ends "train.yaml is a job of Kubernetes" 0
is "of four pods" "$out" 4
pids=()
for i in 3 1 2 0; do
    timeout -k 5 "$limit" sh "$tmp/pod-$i" >"$tmp/pod-$i.out" 2>"$tmp/pod-$i.err" </dev/null &
    pids+=($!)
done
failed=0
for pid in "${pids[@]}"; do
    wait "$pid" || failed=$((failed + 1))
done
err=$(cat "$tmp"/pod-*.err)
is "its pods are a job" "$failed" 0
is "of four ranks" "$(cat "$tmp"/pod-*.out | grep -o '"n_ranks":[0-9]*' | sort -u)" '"n_ranks":4'
is "each with a secret of its own" "$(stat -c %a "$tmp"/own-*/job.secret | sort | uniq -c | xargs)" "4 600"
# Without the copy the secret is refused: it is there for that.
run env TUTTI_SECRET_FILE="$tmp/secret/job.secret" "$tutti" bench -b 8 -e 8
like "a mounted secret would be refused" "$err" 'may be read or written by others'

finish
