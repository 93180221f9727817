user > clean up
model > Sh {"command":"rm -r build"}
crash
pod is paused
person > abort
asks: 0
ran Sh 0
pod is idle
person > resume
reply < refused not_paused
