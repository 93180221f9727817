user > both
model > Sh {"command":"first"}
model > Sh {"command":"second"}
asks: 2
crash
person > resume
asks: 2
person > approve
ran Sh 1
person > approve
ran Sh 2
model > Both.
pod is idle
