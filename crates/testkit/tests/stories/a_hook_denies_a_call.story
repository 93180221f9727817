with hooks
with posture full
hook Sh > deny not on a Sunday
user > build
model > Sh {"command":"make"}
ran Sh 0
verdict: hook
model > Not today.
context: user build / call Sh / …not on a Sunday / assistant Not today.
pod is idle
