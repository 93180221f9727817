# A job that cannot run is paused with the reason, not tried for ever.
with mandate {"objective":"tidy up"}
with model none
job: paused
pod is idle
