with max_turns 2
user > note three times
model > Note {"line":"1"}
tools hold
model > Note {"line":"2"}
tool > done
log … run_completed(limit_reached)
ran Note 2
pod is idle
