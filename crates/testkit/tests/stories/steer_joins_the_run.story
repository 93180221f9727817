# Steering is drained before the next request, without a run of its own.
user > note it
tools hold
model > Note {"line":"milk"}
user steer > and eggs
reply < queued
queue: and eggs
tool > done
log … tool_result(done) turn_end dequeued(steered) user_input llm_call
tools go
model > Both.
context: user note it / call Note / result noted / user and eggs / assistant Both.
pod is idle
