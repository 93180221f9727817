user > note it
tools hold
model > Note {"line":"milk"}
notify > the shop closes
notes: 1
tool > done
notes: 0
tools go
model > Noted in time.
context: user note it / call Note / result noted / system [Notification] the shop closes / assistant Noted in time.
pod is idle
