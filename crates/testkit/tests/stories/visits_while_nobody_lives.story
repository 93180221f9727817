person > shutdown
pod is gone
visit > rename sleeper
visit > checkpoint x
visit > archive
visit > queue wake up
boot
name: sleeper
model > Awake.
context: user wake up / assistant Awake.
pod is idle
