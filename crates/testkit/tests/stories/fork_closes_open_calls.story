user > clean up
model > Sh {"command":"rm -r build"}
asks: 1
fork
asks: 0
pod is idle
context: user clean up / call Sh / result …
user > go on
model > Here.
pod is idle
