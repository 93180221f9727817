kills differ: rules may hold before the question or after
user > push
model > Sh {"command":"git push"}
asks: 1
policy > deny git push
log … config_changed(permissions.rules)
# The question stays; the call is judged anew when it is answered, and a deny wins.
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
# The same rules again leave nothing in the log.
log: opened(pod)
policy > none
log: config_changed(permissions.rules)
