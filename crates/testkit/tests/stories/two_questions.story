# The run goes on when the last of them is answered.
kills differ: an answer whose reply was lost is given again, to the next question
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
