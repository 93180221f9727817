child 3 > turn_ended
reply < ok
log … inbox invoke(pod_event) llm_call
child 3 > turn_ended
reply < ok
log:
model > The child is done.
log … run_completed(finished)
child 4 > slept
log: inbox
pod is idle
notes: 0
context: system [Report] pod `child` has ended… / assistant The child is done.
