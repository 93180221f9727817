kills differ: pending steering comes before the reply of a resumed run
user > tell me
model > begin Once
user steer > shorter
model > stop end_turn
log … queued_input(steer) assistant_item(text) llm_end(done) turn_end dequeued(steered) user_input llm_call
model > Bye.
context: user tell me / assistant Once / user shorter / assistant Bye.
pod is idle
