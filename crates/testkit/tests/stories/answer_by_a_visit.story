# An ask can be answered while no pod runs.
user > clean up
model > Sh {"command":"rm -r build"}
signal
pod is gone
visit > approve
boot
ran Sh 1
model > Clean.
pod is idle
