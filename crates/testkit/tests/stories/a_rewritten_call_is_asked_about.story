with hooks
kills differ: the hooks' reply may have changed before the repeated request
hook Sh > rewrite {"command":"make -n"}
user > build
model > Sh {"command":"make"}
asks: 1
person > approve
ran Sh 1
model > Sh {"command":"make"}
asks: 1
# Hooks now rewrite the call differently, so the answer does not apply.
hook Sh > rewrite {"command":"make -q"}
person > approve
asks: 1
ran Sh 1
person > approve
ran Sh 2
model > Built.
pod is idle
