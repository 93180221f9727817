# A stopping pod waits briefly for its parent; unsent reports arrive after its next start.
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
