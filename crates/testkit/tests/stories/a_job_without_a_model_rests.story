# A job that cannot run is paused with the reason and not retried forever.
with mandate {"objective":"tidy up"}
with model none
job: paused
pod is idle
