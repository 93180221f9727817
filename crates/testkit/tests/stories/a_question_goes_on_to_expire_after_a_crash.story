with expires 60
kills differ: a repeated ask has more time
user > clean up
model > Sh {"command":"rm -r build"}
clock + 30 s
crash
asks: 1
pod is paused
clock + 40 s
asks: 0
ran Sh 0
model > Left as it was.
pod is idle
