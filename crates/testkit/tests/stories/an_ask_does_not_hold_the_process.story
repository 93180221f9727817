with idle_exit 60
user > clean up
model > Sh {"command":"rm -r build"}
clock + 61 s
pod is gone
boot
asks: 1
pod is paused
person > approve
ran Sh 1
model > Clean.
pod is idle
