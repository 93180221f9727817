kills differ: an interrupt after a crash finds a paused run
user > one
model > begin wor
user interrupt > two
reply < run
log … run_completed(cancelled) invoke(user_send) user_input llm_call
model > Two.
pod is idle
