# An offline edit pauses and cancels a job without a running pod.
with mandate {"objective":"tidy up","retry":{"max":3,"base_ms":4000,"jitter":false}}
model > fails for 7200 s busy
job: waiting
signal
visit > pause
boot
job: paused
clock + 60 s
job: paused
signal
visit > cancel
boot
job: cancelled
clock + 60 s
pod is idle
