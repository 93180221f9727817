with posture full
user > clean up
model > Sh {"command":"rm -r build"}
asks: 0
ran Sh 1
model > Clean.
pod is idle
