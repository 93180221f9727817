user > clean up
model > Sh {"command":"rm -r build"}
person > cancel
log … ask answer(abort) tool_result(cancelled) run_completed(cancelled)
asks: 0
pod is idle
