user > note it
tools hold
model > Note {"line":"milk"}
user steer > mind @hint
reply < queued
tool > done
log … tool_result(done) turn_end dequeued(steered) user_input system_item(file_attachment) llm_call
tools go
model > Both.
context: user note it / call Note / result noted / user mind @hint / system content of hint / assistant Both.
pod is idle
