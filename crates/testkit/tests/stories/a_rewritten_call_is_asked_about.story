with hooks
kills differ: hooks may have said something else when it was asked again
hook Sh > rewrite {"command":"make -n"}
user > build
model > Sh {"command":"make"}
asks: 1
person > approve
ran Sh 1
model > Sh {"command":"make"}
asks: 1
# Hooks rewrite it in another way now: the answer was not given for that.
hook Sh > rewrite {"command":"make -q"}
person > approve
asks: 1
ran Sh 1
person > approve
ran Sh 2
model > Built.
pod is idle
