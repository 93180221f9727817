# What does not fit is not asked: the run ends, the queue is held, and the next run is refused.
kills differ: a request that was cut off counts as what it had reserved
with budget {"tokens":2100}
user > divide the work
model > SpawnPod {"name":"a","write":"/project/a","tokens":1100}
log … run_completed(limit_reached)
pod is idle
user > go on
reply < refused budget_exceeded
pod a > stops
user > go on
reply < run
model > There is some left.
pod is idle
