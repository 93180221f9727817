# A temporary error is retried after the wait that the provider requests, at most as often as the
# mandate allows.
with mandate {"objective":"tidy up","retry":{"max":2,"base_ms":4000,"jitter":false}}
model > fails for 7200 s busy
job: waiting after 0
log … run_errored state
clock + 7199 s
job: waiting after 0
clock + 2 s
job: running after 1
log … invoke llm_call
model > fails for 3700 s busy
job: waiting after 1
clock + 3699 s
job: waiting after 1
clock + 2 s
job: running after 2
model > fails for 7200 s busy
job: failed after 2
clock + 10000 s
job: failed after 2
pod is idle
