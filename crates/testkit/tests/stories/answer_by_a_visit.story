# Nobody has to be alive to be answered.
user > clean up
model > Sh {"command":"rm -r build"}
signal
pod is gone
visit > approve
boot
ran Sh 1
model > Clean.
pod is idle
