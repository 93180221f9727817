# A permanent error is not retried.
with mandate {"objective":"tidy up","retry":{"max":5}}
model > fails for good no such model
job: failed after 0
pod is idle
