# The deadline ends whatever goes on; a job that waits then has failed, too.
with mandate {"objective":"tidy up","deadline":1800000060}
model > begin Tid
job: running
clock + 100000000 s
job: failed
log … run_completed(limit_reached)
pod is idle
