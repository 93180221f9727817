# The deadline ends whatever goes on; a job that waits then has failed, too.
kills differ: words that were not whole are gone with a process that dies when the time is over: the next one ends the job
with mandate {"objective":"tidy up","deadline":1800000060}
model > begin Tid
job: running
clock + 100000000 s
job: failed
log … run_completed(limit_reached)
pod is idle
