# A pod that stops waits a little for its parent; what does not arrive stays and arrives in the next life.
with parent
with task clean up
parent away
model > Done.
person > shutdown
pod is stopping
clock + 3 s
pod is gone
told: nothing
parent back
boot
told: turn_ended(finished), shut_down
pod is idle
