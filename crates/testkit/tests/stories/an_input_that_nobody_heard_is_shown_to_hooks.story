with hooks
with task clean up
model > Clean.
context: user clean up / assistant Clean.
signal
visit > queue more
hook prompt > rewrite less
boot
model > Less.
context: user clean up / assistant Clean. / user less / assistant Less.
signal
visit > queue forbidden
hook prompt > deny not this
boot
queue: empty
alert < not this
pod is idle
