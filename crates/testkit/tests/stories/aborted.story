user > clean up
model > Sh {"command":"rm -r build"}
person > abort
ran Sh 0
pod is idle
asks: 0
user > again
model > Here.
pod is idle
