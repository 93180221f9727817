# A call that was complete before the break runs.
user > note it
model > Note {"line":"whole"}
model > begin Note {"line":"ha
model > cut
ran Note 1
model > One of them.
noted: whole
pod is idle
