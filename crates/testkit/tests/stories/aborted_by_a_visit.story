user > clean up
model > Sh {"command":"rm -r build"}
signal
visit > abort
boot
asks: 0
ran Sh 0
pod is idle
