# The run ends when the time limit has passed, even while it waits.
kills differ: an interrupted run is not resumed after its time limit
with budget {"wall_s":100}
user > divide the work
model > SpawnPod {"name":"a","write":"/project/a"}
model > WaitPods {"names":["a"],"timeout_s":600}
clock + 101 s
log … tool_result(cancelled) turn_end(cancelled) run_completed(limit_reached)
pod is idle
user > more
reply < refused budget_exceeded
