# The acceptance command checks a finished run; its output is the input of the next attempt.
with mandate {"objective":"make it","acceptance":"test /project/made","retry":{"max":3,"base_ms":1000,"jitter":false}}
model > Made, I think.
log … run_completed(finished) tool_dispatch tool_result(done) queued_input state
job: waiting after 0
clock + 1 s
job: running after 1
context: user make it / assistant Made, I think. / user [Not accepted]…
model > Put {"path":"/project/made","content":"yes"}
model > Now it is.
job: completed after 1
ran Bash 2
