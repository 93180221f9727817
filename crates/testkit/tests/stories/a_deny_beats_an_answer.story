user > clean up
model > Sh {"command":"rm -r build"}
asks: 1
person > posture plan
asks: 1
person > approve
asks: 0
ran Sh 0
verdict: posture
log … answer(approved) tool_result(refused)
model > Left as it was.
pod is idle
