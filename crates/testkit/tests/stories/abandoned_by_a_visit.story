user > tell me
model > begin Once
signal
pod is gone
visit > abandon
boot
pod is idle
