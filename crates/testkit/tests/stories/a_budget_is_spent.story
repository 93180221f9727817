# A request that exceeds the budget is not sent: the run ends, the queue is held, and the next run is refused.
kills differ: an interrupted request counts with its reservation
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
