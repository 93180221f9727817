# The deadline ends the run; a waiting job fails too.
kills differ: partial text is lost with a process that dies at the deadline; the next one ends the job
with mandate {"objective":"tidy up","deadline":1800000060}
model > begin Tid
job: running
clock + 100000000 s
job: failed
log … run_completed(limit_reached)
pod is idle
