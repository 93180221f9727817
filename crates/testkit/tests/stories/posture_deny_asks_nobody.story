with posture deny
user > clean up
model > Sh {"command":"rm -r build"}
asks: 0
ran Sh 0
log … tool_result(refused)
model > I may not.
pod is idle
