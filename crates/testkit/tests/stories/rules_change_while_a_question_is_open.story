kills differ: rules may change before the ask or after
user > push
model > Sh {"command":"git push"}
asks: 1
policy > deny git push
log … config_changed(permissions.rules)
# The ask stays open; the call is judged again after the answer, and a deny wins.
asks: 1
person > approve
asks: 0
ran Sh 0
verdict: user
policy > allow git push
model > Sh {"command":"git push"}
asks: 0
ran Sh 1
verdict: user
model > Pushed.
pod is idle
log … run_completed(finished)
crash
# Unchanged rules are not logged again.
log: opened(pod)
policy > none
log: config_changed(permissions.rules)
