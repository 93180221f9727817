kills differ: a cancel after a crash abandons the run instead of rolling back
user > tell me
model > fails busy come back later
person > cancel
log … llm_end(cancelled) run_completed(rolled_back)
clock + 120 s
pod is idle
context:
