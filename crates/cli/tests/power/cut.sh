#!/bin/bash
# One power cut. Runs in a separate mount namespace, so that nothing stays mounted.
#
#   cut.sh DIR DELAY MINKE [PRELOAD]
#
# DIR contains `disk` (an unused ext4 image), `work` and `s.toml`. A run starts with its home on the image. After DELAY
# seconds all its processes are stopped, and the image is copied in its current state, without data that the file system
# has not written yet. Then the old image is unmounted, and the copy is mounted, checked and used to resume the run.
# Output on stdout: `shown CALL`, `kept CALL`, `verify CODE`, `resume CODE`, `session N`.
set -u
dir=$1 delay=$2 minke=$3 preload=${4:-}
home=$dir/mnt/home
mkdir -p "$dir/mnt" "$dir/work"
mount -t ext4 -o loop,noatime "$dir/disk" "$dir/mnt" || exit 99
loop=$(findmnt -no SOURCE "$dir/mnt")
cd "$dir/work" || exit 99

members() { # processes of the run, by the home in their environment
    grep -lsza "^MINKE_HOME=$home\$" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3
}
signal() { # signal NAME: to every member, until there are no new ones
    local before='' now
    while now=$(members | sort | tr '\n' ' '); [ "$now" != "$before" ]; do
        for pid in $now; do kill "-$1" "$pid" 2>/dev/null; done
        before=$now
    done
}

env MINKE_HOME="$home" ${preload:+LD_PRELOAD="$preload"} "$minke" exec --json --name tale --model scripted:../s.toml \
    --unsandboxed --posture full go >../shown 2>../err &
exec_pid=$!
sleep "$delay"
signal STOP
# Not while the kernel writes: a copy of half a write is not a state that a disk could have.
for attempt in 1 2 3 4 5 6 7 8; do
    before=$(cat "/sys/block/${loop#/dev/}/stat")
    cp --sparse=always "$dir/disk" "$dir/cut"
    [ "$before" = "$(cat "/sys/block/${loop#/dev/}/stat")" ] && break
done
signal KILL
wait "$exec_pid" 2>/dev/null
cd /
for attempt in $(seq 100); do umount "$dir/mnt" 2>/dev/null && break; sleep 0.02; done
if mountpoint -q "$dir/mnt" || losetup -j "$dir/disk" | grep -q .; then echo "busy"; exit 98; fi

mount -t ext4 -o loop,noatime "$dir/cut" "$dir/mnt" || { echo "unmountable"; exit 97; }
cd "$dir/work" || exit 99
grep '"type":"item.completed"' ../shown | grep -o '"call_id":"[^"]*"' | cut -d'"' -f4 | sort -u | sed 's/^/shown /'
echo "session $(find "$home/data/sessions" -mindepth 1 -maxdepth 1 -name '[0-9a-f]*' 2>/dev/null | wc -l)"
echo "making $(find "$home/data/sessions" -mindepth 1 -maxdepth 1 -name '.new-*' 2>/dev/null | wc -l)"
echo "started $(grep -c '"type":"thread.started"' ../shown)"
export MINKE_HOME=$home
if "$minke" log show tale --json >../log 2>../looked; then
    grep '"kind":"tool_result"' ../log | grep -o '"call_id":"[^"]*"' | cut -d'"' -f4 | sort -u | sed 's/^/kept /'
fi
"$minke" exec --resume tale >../resumed 2>&1 || "$minke" exec --resume tale "continue" >>../resumed 2>&1
echo "resume $?"
"$minke" log verify >../verified 2>&1
echo "verify $?"
sort ran 2>/dev/null | uniq -d | sed 's/^/twice /'
cd /
for attempt in $(seq 100); do umount "$dir/mnt" 2>/dev/null && break; sleep 0.02; done
echo "end"
