# The run continues after the last answer.
kills differ: an answer without a reply is repeated, for the next ask
user > both
model > Sh {"command":"one"}
model > Sh {"command":"two"}
asks: 2
crash
pod is paused
person > approve
pod is paused
asks: 1
person > deny not this one
asks: 0
pod is running
ran Sh 1
model > One of them.
context: user both / call Sh / call Sh / result … / result … / assistant One of them.
pod is idle
