user > both
model > Sh {"command":"make"}
model > Read {"path":"/project/none"}
asks: 1
ran Read 1
ran Sh 0
person > approve
ran Sh 1
model > Made.
context: user both / call Sh / call Read / result … / result … / assistant Made.
pod is idle
