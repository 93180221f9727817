with posture full
with mandate {"permissions":{"posture":"loose"}}
user > clean up
model > Sh {"command":"rm -r build"}
ran Sh 0
verdict: posture
model > Left.
pod is idle
